-- The functions that write orders; nothing else in the program does.
-- Lock order everywhere: landings, then the activity, then orders, so that landing, cancel and rebuild never deadlock.

-- Places a batch of holds as orders, inside the landing's transaction, after the cursor has moved.
-- Holds come in the order in which the gate took them; of two holds of one buyer the first becomes the order.
-- Returns a row for each hold that did not become an order now:
--   'known'    this order id is stored or set aside already (a redelivery); nothing to do
--   'refused'  with reason sold_out | already_bought and the units that go back to the gate; its give_backs row is written
-- Both walls are the constraints themselves: the unique indexes decide duplicates, `sold_within_total` decides the bound.
create function place_orders(
  p_activity text, p_run bigint,
  p_order_ids bigint[], p_buyers text[], p_requests text[], p_quantities int[], p_held_at timestamptz[]
) returns table (order_id bigint, outcome text, reason text, units int)
language plpgsql as $$
#variable_conflict use_column
declare
  item          record;
  h             record;
  placed        bigint[];
  refused_by    text;
  left_units    int;
  back          int;
  violated      text;
  one_by_one    boolean := false;
begin
  perform 1 from activities a where a.id = p_activity for update;
  select r.item_name, r.price_minor, r.currency into strict item
    from runs r where r.activity_id = p_activity and r.run = p_run;

  -- Nearly always all of them fit and none repeats: one statement, one trigger call, one update of the activity.
  begin
    with fresh as (
      insert into orders (order_id, activity_id, buyer_id, request_id, run, quantity, state,
                          item_name, price_minor, currency, held_at)
      select b.order_id, p_activity, b.buyer_id, b.request_id, p_run, b.quantity, 'placed',
             item.item_name, item.price_minor, item.currency, b.held_at
        from unnest(p_order_ids, p_buyers, p_requests, p_quantities, p_held_at) with ordinality
             as b (order_id, buyer_id, request_id, quantity, held_at, n)
       where not exists (select from dead_letters d where d.order_id = b.order_id)
       order by b.n
      on conflict do nothing
      returning order_id)
    select array_agg(p.order_id) into placed from fresh p;
  exception when check_violation then
    get stacked diagnostics violated = constraint_name;
    if violated <> 'sold_within_total' then raise; end if;
    one_by_one := true;
  end;

  if cardinality(placed) = cardinality(p_order_ids) then return; end if;

  for h in
    select b.* from unnest(p_order_ids, p_buyers, p_requests, p_quantities, p_held_at) with ordinality
             as b (order_id, buyer_id, request_id, quantity, held_at, n)
     where one_by_one or not (b.order_id = any (coalesce(placed, '{}')))
     order by b.n
  loop
    select a.total - a.sold into left_units from activities a where a.id = p_activity;
    refused_by := null;
    if exists (select from orders o where o.order_id = h.order_id)
       or exists (select from dead_letters d where d.order_id = h.order_id)
       or exists (select from give_backs g where g.order_id = h.order_id) then
      order_id := h.order_id; outcome := 'known'; reason := null; units := 0;
      return next;
      continue;
    end if;
    if one_by_one then
      if h.quantity <= left_units then
        insert into orders (order_id, activity_id, buyer_id, request_id, run, quantity, state,
                            item_name, price_minor, currency, held_at)
        values (h.order_id, p_activity, h.buyer_id, h.request_id, p_run, h.quantity, 'placed',
                item.item_name, item.price_minor, item.currency, h.held_at)
        on conflict do nothing;
        if found then continue; end if;
        refused_by := 'already_bought';
      -- of two truths the buyer hears the one that would hold with stock left (results.md: already_bought before sold_out)
      elsif exists (select from orders o where o.activity_id = p_activity and o.buyer_id = h.buyer_id
                       and (o.state in ('placed', 'paid') or o.request_id = h.request_id and o.state <> 'lost')) then
        refused_by := 'already_bought';
      else
        refused_by := 'sold_out';
      end if;
    else
      refused_by := 'already_bought';
    end if;

    -- A refusal for want of stock gives back what could still be sold and burns the rest (P5): so refusals end,
    -- and tickets + in flight never fall below what is left.
    back := case refused_by when 'sold_out' then least(h.quantity, greatest(left_units, 0)) else h.quantity end;
    if back < h.quantity then
      update activities a set surplus = greatest(0, a.surplus - (h.quantity - back)) where a.id = p_activity;
    end if;
    perform write_refusal(h.order_id, p_activity, p_run, h.buyer_id, h.request_id, h.quantity, back,
                          refused_by, h.held_at);
    order_id := h.order_id; outcome := 'refused'; reason := refused_by; units := back;
    return next;
  end loop;
end $$;

-- A hold that never became an order: the refused row for the buyer to see, and the way back of its units.
create function write_refusal(
  p_order_id bigint, p_activity text, p_run bigint, p_buyer text, p_request text, p_quantity int, p_units int,
  p_reason text, p_held_at timestamptz
) returns void language plpgsql as $$
begin
  insert into orders (order_id, activity_id, buyer_id, request_id, run, quantity, state, reason,
                      item_name, price_minor, currency, held_at, closed_at)
  select p_order_id, p_activity, p_buyer, p_request, p_run, p_quantity, 'refused', p_reason,
         r.item_name, r.price_minor, r.currency, p_held_at, now()
    from runs r where r.activity_id = p_activity and r.run = p_run
  on conflict do nothing;  -- a dead order under the same request id stays the one that is shown
  insert into give_backs (order_id, activity_id, run, taking_run, buyer_id, request_id, quantity, units, reason)
  select p_order_id, p_activity, a.run, p_run, p_buyer, p_request, p_quantity, p_units, p_reason
    from activities a where a.id = p_activity
  on conflict do nothing;
end $$;

-- Ends a live order: state, `sold` (by trigger) and the give-back row change together. Safe to repeat.
-- Returns the order's state afterwards, null where there is no such order of this buyer (p_buyer null: any buyer).
create function end_order(p_order_id bigint, p_buyer text, p_state text, p_reason text)
returns text language plpgsql as $$
declare
  o orders;
begin
  select * into o from orders where order_id = p_order_id and (p_buyer is null or buyer_id = p_buyer);
  if not found then return null; end if;
  perform 1 from activities where id = o.activity_id for update;
  update orders set state = p_state, reason = p_reason, closed_at = now()
   where order_id = p_order_id and state = 'placed' returning * into o;
  if not found then
    return (select state from orders where order_id = p_order_id);
  end if;
  insert into give_backs (order_id, activity_id, run, taking_run, buyer_id, request_id, quantity, units, reason)
  select o.order_id, o.activity_id, a.run, o.run, o.buyer_id, o.request_id, o.quantity, o.quantity, p_reason
    from activities a where a.id = o.activity_id;
  return o.state;
end $$;

-- Ends a dead letter by giving its units back; true for the one call that did it.
create function give_back_dead_letter(p_order_id bigint) returns boolean language plpgsql as $$
declare
  d dead_letters;
begin
  select * into d from dead_letters where order_id = p_order_id;
  if not found then return false; end if;
  perform 1 from activities where id = d.activity_id for update;
  update dead_letters set state = 'given_back', ended_at = now()
   where order_id = p_order_id and state = 'open' returning * into d;
  if not found then return false; end if;
  perform write_refusal(d.order_id, d.activity_id, d.run, d.buyer_id, d.request_id, d.quantity, d.quantity,
                        'not_ordered', d.held_at);
  return true;
end $$;
