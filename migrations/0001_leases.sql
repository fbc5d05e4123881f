-- Leases: who does a thing that one process should do, by the database's clock.
-- A lease only avoids waste; what makes a thing safe is the compare-and-set of the thing itself (design: the landing's cursor).

create table leases (
  name       text        primary key,
  owner      text        not null,
  token      bigint      not null,             -- grows with each taking
  expires_at timestamptz not null,
  clean      boolean     not null              -- the last owner gave it up in order
);

-- Worker numbers of order ids (docs/data.md). A holder stamps ids only with instants below id_until_ms;
-- the next holder starts there, so two holders never stamp the same instant, whatever their clocks say.
create table worker_numbers (
  number      int         primary key check (number between 0 and 1023),
  owner       text        not null,
  expires_at  timestamptz not null,            -- by the database's clock
  id_until_ms bigint      not null check (id_until_ms >= 0)  -- epoch ms in the holder's clock, exclusive
);
