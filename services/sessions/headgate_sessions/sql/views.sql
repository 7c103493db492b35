-- The views for a BI tool. Days and hours are UTC. The names of the steps are those of funnel in the settings: change both.

create or replace view sessions.final_session as
select session_id, user_id, started_at, ended_at, duration_ms, events, pages, first_page, last_page,
       funnel_step, converted, revenue, currency, bounce
from sessions.session
where is_final and not is_deleted;

comment on view sessions.final_session is 'Final sessions. Sums for a day that is further back than gap and lateness never change.';

create or replace view sessions.live_session as
select session_id, user_id, started_at, ended_at, duration_ms, events, pages, first_page, last_page,
       funnel_step, converted, revenue, currency, bounce, is_final
from sessions.session
where not is_deleted;

comment on view sessions.live_session is 'The current state of all sessions, open ones included. No event is in two of them.';

create or replace view sessions.conversion_by_day as
select date_trunc('day', started_at at time zone 'UTC') as day,
       count(*) as sessions,
       count(distinct user_id) as users,
       count(*) filter (where converted) as converted,
       round(100.0 * count(*) filter (where converted) / count(*), 2) as conversion_percent,
       round(100.0 * count(*) filter (where bounce) / count(*), 2) as bounce_percent,
       round(avg(duration_ms) / 1000.0, 1) as average_seconds,
       round(avg(pages), 2) as average_pages
from sessions.final_session
group by 1;

comment on view sessions.conversion_by_day is 'Conversions by the day on which the session started.';

create or replace view sessions.revenue_by_day as
select date_trunc('day', started_at at time zone 'UTC') as day, currency,
       count(*) as sessions, sum(revenue) as revenue
from sessions.final_session
where currency is not null
group by 1, 2;

comment on view sessions.revenue_by_day is 'Revenue of sessions by the day on which they started; that of guests is only in live_minute.';

create or replace view sessions.funnel_by_day as
select date_trunc('day', started_at at time zone 'UTC') as day, step.number as step, step.name as name,
       count(*) filter (where funnel_step >= step.number) as sessions,
       round(100.0 * count(*) filter (where funnel_step >= step.number) / count(*), 2) as percent
from sessions.final_session
cross join (values (1, 'view'), (2, 'cart_add'), (3, 'checkout'), (4, 'payment')) as step (number, name)
group by 1, 2, 3;

comment on view sessions.funnel_by_day is 'Number of sessions of a day that reached each step, in the order of the steps.';

create or replace view sessions.live_minute as
select activity.minute, activity.events, activity.users, revenue.currency, revenue.revenue, revenue.payments
from sessions.activity
left join sessions.revenue on revenue.minute = activity.minute;

comment on view sessions.live_minute is 'Metrics of each minute, the current one included; one row per currency, or one with nulls without revenue.';

create or replace view sessions.active_now as
select users, since, until from sessions.active where until = (select max(until) from sessions.active);

comment on view sessions.active_now is 'Number of users in the newest window.';

create or replace view sessions.top_now as
select rank, page, events, since, until from sessions.top where until = (select max(until) from sessions.top);

comment on view sessions.top_now is 'The pages with the most events in the newest window.';
