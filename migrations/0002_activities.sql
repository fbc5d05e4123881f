-- Activities: one sale each. PostgreSQL is the truth about total, sold, surplus, run and version.

create table activities (
  id               text        primary key check (id ~ '^[A-Za-z0-9_-]{1,64}$'),
  state            text        not null check (state in ('in_review', 'scheduled', 'open', 'ended', 'settled', 'rejected')),
  paused           boolean     not null default false,
  preheat          text        not null default 'none' check (preheat in ('none', 'written', 'verified', 'confirmed', 'failed')),
  item_name        text        not null check (char_length(item_name) between 1 and 120),
  image_url        text,
  price_minor      bigint      not null check (price_minor between 0 and 100000000000),
  currency         text        not null check (currency ~ '^[A-Z]{3}$'),
  total            int         not null check (total between 0 and 10000000),   -- the present total
  sold             int         not null default 0,                              -- units in live orders; kept by the trigger of 0003
  surplus          int         not null default 0 check (surplus >= 0),         -- strict mode: tickets beyond the stock (design §2)
  per_buyer_limit  int         not null check (per_buyer_limit between 1 and 1000),
  opens_at         timestamptz not null,
  ends_at          timestamptz not null,
  answer_when      text        not null default 'held' check (answer_when in ('held', 'ordered')),
  overshoot        numeric(4,3) not null default 1 check (overshoot between 1 and 2),
  segments         int         not null default 1 check (segments between 1 and 64),
  durability       text        not null default 'memory' check (durability in ('memory', 'replicated', 'synced')),
  auto_confirm     boolean     not null default true,
  run              bigint      not null default 0,     -- 0: never preheated; only grows
  version          bigint      not null default 1,     -- grows with every change a process or the gate must learn
  created_by       text        not null,
  created_at       timestamptz not null default now(),
  check (ends_at > opens_at),
  check (overshoot = 1 or answer_when = 'ordered'),
  -- The wall of G1: never more live units than there are. The landing leans on this constraint itself (0003),
  -- so taking it away shows at once.
  constraint sold_within_total check (sold between 0 and total)
);

-- One preheated life of an activity at the gate. What was promised (name, price, limit) is copied here at preheat,
-- so the price promised is the price stored.
create table runs (
  activity_id     text        not null references activities (id),
  run             bigint      not null check (run > 0),
  state           text        not null check (state in ('building', 'open', 'lost', 'closed')),
  segments        int         not null check (segments between 1 and 64),
  shards          int         not null check (shards between 1 and 1024),  -- buyer shards a segment
  fences          text[]      not null,        -- replication id per segment on which the run was built
  timeline        bigint      not null,        -- PostgreSQL's timeline when the run was built
  tickets         int         not null check (tickets >= 0),   -- units (strict: tickets) written to the gate
  item_name       text        not null,
  price_minor     bigint      not null,
  currency        text        not null,
  expires_at      timestamptz not null,        -- when the run's keys end by themselves
  lost_reason     text,
  created_at      timestamptz not null default now(),
  primary key (activity_id, run)
);

-- What the gate must learn, written in the transaction that decides it and carried until every segment has it.
create table gate_changes (
  activity_id text        not null references activities (id),
  version     bigint      not null,
  created_at  timestamptz not null default now(),
  done_at     timestamptz,
  primary key (activity_id, version)
);
create index gate_changes_pending on gate_changes (created_at) where done_at is null;

create table audit (
  id          bigint      generated always as identity primary key,
  at          timestamptz not null default now(),
  actor       text        not null,
  action      text        not null,
  activity_id text,
  from_state  text,
  to_state    text,
  reason      text,
  details     jsonb
);
create index audit_activity on audit (activity_id, id);
