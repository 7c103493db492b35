-- The tables that the sessions app writes in PostgreSQL. Apply this file once, then views.sql:
--     psql -v ON_ERROR_STOP=1 -d shop -f tables.sql -f views.sql
-- The app needs select, insert and update on these tables, and no other right in this schema.

create schema if not exists sessions;

create table if not exists sessions.session (
    session_id   text        not null primary key,
    user_id      text        not null,
    started_at   timestamptz not null,
    ended_at     timestamptz,
    duration_ms  bigint,
    events       bigint      not null,
    pages        bigint      not null,
    first_page   text,
    last_page    text,
    funnel_step  bigint      not null,
    converted    boolean     not null,
    revenue      numeric not null,
    currency     text,
    bounce       boolean     not null,
    is_final     boolean     not null,
    is_deleted   boolean     not null,
    merged_into  text,
    revision     bigint      not null
);

create index if not exists session_started_at on sessions.session (started_at);
create index if not exists session_user_id on sessions.session (user_id);

comment on table sessions.session is 'One row per session: its latest revision. Queries should read final_session or live_session, which leave out deleted sessions.';
comment on column sessions.session.session_id is 'The user and the start that was emitted first. It stays when late events move the start.';
comment on column sessions.session.user_id is 'Value of the field that the settings name as user, as text.';
comment on column sessions.session.started_at is 'Time of the first event.';
comment on column sessions.session.ended_at is 'Time of the last event; null if deleted.';
comment on column sessions.session.duration_ms is 'From the first event to the last; 0 for a single event.';
comment on column sessions.session.events is 'Number of events, failed ones included.';
comment on column sessions.session.pages is 'Number of distinct pages or products.';
comment on column sessions.session.first_page is 'Page of the earliest event with one; of several at the same time the least by name.';
comment on column sessions.session.last_page is 'Page of the latest event with one; of several at the same time the greatest by name.';
comment on column sessions.session.funnel_step is 'Number of steps of the funnel that were taken in order, from 0.';
comment on column sessions.session.converted is 'Whether the session has a successful conversion, whatever its position in the funnel.';
comment on column sessions.session.revenue is 'Amounts of payments minus those of refunds, exact; negative if more was refunded.';
comment on column sessions.session.currency is 'Currency of the first payment or refund; null without any, XXX if the stream has no currency.';
comment on column sessions.session.bounce is 'Whether the session has few events or pages, as the settings define, and no conversion.';
comment on column sessions.session.is_final is 'Whether the session can no longer change.';
comment on column sessions.session.is_deleted is 'Whether a late event merged this session into another one, merged_into; its metrics are then empty.';
comment on column sessions.session.merged_into is 'The session_id that this deleted session was merged into; null otherwise.';
comment on column sessions.session.revision is 'Number of the record of the session, from 1; the greatest is valid.';

create table if not exists sessions.activity (
    minute    timestamptz not null primary key,
    events    bigint      not null,
    users     bigint      not null,
    is_final  boolean     not null,
    revision  bigint      not null
);

comment on table sessions.activity is 'Events and users of each minute, emitted early during the minute and corrected by late events.';
comment on column sessions.activity.minute is 'Start of the minute.';
comment on column sessions.activity.events is 'Number of events without duplicates, exact.';
comment on column sessions.activity.users is 'Approximate number of distinct users: standard error 1.6 %.';
comment on column sessions.activity.is_final is 'Whether the minute can no longer change.';
comment on column sessions.activity.revision is 'Number of the record of the minute, from 1; the greatest is valid.';

create table if not exists sessions.revenue (
    minute    timestamptz not null,
    currency  text        not null,
    revenue   numeric not null,
    payments  bigint      not null,
    is_final  boolean     not null,
    revision  bigint      not null,
    primary key (minute, currency)
);

comment on table sessions.revenue is 'Revenue of each minute and currency, of users and of guests.';
comment on column sessions.revenue.minute is 'Start of the minute.';
comment on column sessions.revenue.currency is 'XXX if the stream has no currency.';
comment on column sessions.revenue.revenue is 'Amounts of payments minus those of refunds, exact.';
comment on column sessions.revenue.payments is 'Number of payments and refunds.';
comment on column sessions.revenue.is_final is 'Whether the minute can no longer change.';
comment on column sessions.revenue.revision is 'Number of the record of the minute and currency, from 1; the greatest is valid.';

create table if not exists sessions.active (
    until  timestamptz not null primary key,
    since  timestamptz not null,
    users  bigint      not null
);

comment on table sessions.active is 'Number of users from since to until, one row per sliding window. Never corrected.';
comment on column sessions.active.until is 'End of the window, exclusive.';
comment on column sessions.active.since is 'Start of the window, inclusive.';
comment on column sessions.active.users is 'Approximate number of distinct users: standard error 1.6 %.';

create table if not exists sessions.top (
    until   timestamptz not null,
    since   timestamptz not null,
    rank    bigint      not null,
    page    text        not null,
    events  bigint      not null,
    primary key (until, rank)
);

comment on table sessions.top is 'The pages with the most events from since to until, by rank. Never corrected.';
comment on column sessions.top.until is 'End of the window, exclusive.';
comment on column sessions.top.since is 'Start of the window, inclusive.';
comment on column sessions.top.rank is 'Rank by number of events, from 1.';
comment on column sessions.top.page is 'The page or product.';
comment on column sessions.top.events is 'Number of events without duplicates, exact.';
