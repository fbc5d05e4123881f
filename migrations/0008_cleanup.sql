-- Cleaning up after a sale: which runs still have keys, and which are to be cleaned without waiting for the quiet hours.

alter table runs
  add column clean_now boolean not null default false,  -- an operator said so with the settlement
  add column cleaned_at timestamptz;                     -- when the run's keys were removed; null: they are there, or ended by themselves

create index runs_to_clean on runs (activity_id, run) where state = 'closed' and cleaned_at is null;
