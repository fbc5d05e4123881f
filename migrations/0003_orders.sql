-- Orders: the stored order, and the shield if Redis was wrong about everything.

create table orders (
  order_id    bigint      primary key,
  activity_id text        not null references activities (id),
  buyer_id    text        not null check (buyer_id ~ '^[A-Za-z0-9_-]{1,64}$'),
  request_id  text        not null check (request_id ~ '^[A-Za-z0-9_.:-]{8,64}$'),
  run         bigint      not null,            -- run of the taking
  quantity    int         not null check (quantity between 1 and 1000),
  state       text        not null check (state in ('placed', 'paid', 'refund_due', 'refunded', 'cancelled', 'expired', 'refused', 'lost')),
  reason      text,
  item_name   text        not null,
  price_minor bigint      not null,
  currency    text        not null,
  held_at     timestamptz not null,            -- Redis time of the hold
  placed_at   timestamptz not null default now(),
  closed_at   timestamptz
);

-- The wall of G2: one live order per buyer and activity.
create unique index orders_one_live_per_buyer on orders (activity_id, buyer_id) where state in ('placed', 'paid');
-- A dead order's key never takes again (P15).
create unique index orders_one_per_request on orders (activity_id, buyer_id, request_id) where state <> 'lost';
create index orders_of_buyer on orders (buyer_id, order_id desc);

-- `sold` is what the live orders say, whoever wrote them: the trigger moves it in the statement that moves the orders,
-- so an order written by hand, an import or a repair meets the same wall (P25). One UPDATE a statement, not a row.
create function orders_move_sold() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    update activities a set sold = a.sold + d.units
      from (select activity_id, sum(quantity)::int as units from new_rows
             where state in ('placed', 'paid') group by activity_id) d
     where a.id = d.activity_id;
  elsif tg_op = 'DELETE' then
    update activities a set sold = a.sold - d.units
      from (select activity_id, sum(quantity)::int as units from old_rows
             where state in ('placed', 'paid') group by activity_id) d
     where a.id = d.activity_id;
  else
    update activities a set sold = a.sold + d.units
      from (select activity_id, sum(units)::int as units from (
              select activity_id, quantity as units from new_rows where state in ('placed', 'paid')
              union all
              select activity_id, -quantity from old_rows where state in ('placed', 'paid')) moved
             group by activity_id having sum(units) <> 0) d
     where a.id = d.activity_id;
  end if;
  return null;
end $$;

create trigger orders_sold_on_insert after insert on orders
  referencing new table as new_rows for each statement execute function orders_move_sold();
create trigger orders_sold_on_update after update on orders
  referencing old table as old_rows new table as new_rows for each statement execute function orders_move_sold();
create trigger orders_sold_on_delete after delete on orders
  referencing old table as old_rows for each statement execute function orders_move_sold();

-- The landing's place in each outbox. The compare-and-set on `cursor` is what makes landing safe to repeat.
create table landings (
  activity_id text    not null,
  run         bigint  not null,
  segment     int     not null,
  cursor      text    not null default '0-0',  -- id of the last landed stream entry
  entry       bigint  not null default 0,      -- its number (`seq`)
  closed      boolean not null default false,
  primary key (activity_id, run, segment),
  foreign key (activity_id, run) references runs (activity_id, run)
);

-- Tries of single holds, counted before the attempt, so that a hold that kills the worker counts too.
create table landing_tries (
  order_id bigint      primary key,
  tries    int         not null,
  error    text,                               -- of the last attempt; null where the worker died in it
  last_at  timestamptz not null default now()
);

-- Units on their way back to the gate. The row is written with the order's end, by the same statement.
create table give_backs (
  order_id    bigint      primary key,
  activity_id text        not null references activities (id),
  run         bigint      not null,            -- the activity's run when the order ended: the script works only on it
  taking_run  bigint      not null,            -- the run of the taking, named by the buyer's receipt
  buyer_id    text        not null,
  request_id  text        not null,
  quantity    int         not null check (quantity > 0),   -- what the order had taken
  units       int         not null check (units >= 0),     -- what goes back to the gate
  reason      text        not null check (reason in ('cancelled', 'expired', 'refunded', 'sold_out', 'already_bought', 'not_ordered', 'lost')),
  state       text        not null default 'pending' check (state in ('pending', 'done', 'absorbed')),
  created_at  timestamptz not null default now(),
  next_try_at timestamptz not null default now(),
  done_at     timestamptz
);
create index give_backs_pending on give_backs (next_try_at) where state = 'pending';
create index give_backs_of_activity on give_backs (activity_id, buyer_id);

-- Holds given up on: kept, alarmed, counted as in flight.
create table dead_letters (
  order_id    bigint      primary key,
  activity_id text        not null references activities (id),
  run         bigint      not null,
  segment     int         not null,
  entry_id    text        not null,
  buyer_id    text        not null,
  request_id  text        not null,
  quantity    int         not null,
  held_at     timestamptz not null,
  error       text        not null,
  tries       int         not null,
  state       text        not null default 'open' check (state in ('open', 'replayed', 'given_back')),
  created_at  timestamptz not null default now(),
  ended_at    timestamptz
);
create index dead_letters_open on dead_letters (created_at) where state = 'open';
