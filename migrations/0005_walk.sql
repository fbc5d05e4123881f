-- What an activity's walk by operators needs: whose plan it is, where an ended outbox ends, and what is due by the clock.

alter table activities
  add column edited_by text;                       -- who changed the plan last; may no more approve it than who made it

alter table landings
  add column last_entry bigint;                    -- number of the gate's last entry; null until its gate is known to have ended

-- the scheduler asks every second
create index activities_due on activities (opens_at) where state in ('scheduled', 'open');
create index landings_not_ended on landings (activity_id) where last_entry is null and not closed;
create index activities_newest on activities (created_at desc, id desc);
