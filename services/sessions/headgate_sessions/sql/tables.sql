-- The tables that the sessions app keeps, for PostgreSQL. Apply once, then views.sql:
--     psql -v ON_ERROR_STOP=1 -d shop -f tables.sql -f views.sql
-- The app needs select, insert, update on them, and nothing else in this schema.

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

comment on table sessions.session is 'A row a session, the latest of its records. Read final_session or live_session instead: those leave out what was merged away.';
comment on column sessions.session.session_id is 'Of the user and of the start that was said first. It stays when late events move the start.';
comment on column sessions.session.user_id is 'The field of the stream that the settings name as user, as text.';
comment on column sessions.session.started_at is 'Time of the first event.';
comment on column sessions.session.ended_at is 'Time of the last event; null where deleted.';
comment on column sessions.session.duration_ms is 'From the first event to the last; 0 for a single event.';
comment on column sessions.session.events is 'How many events, those that failed included.';
comment on column sessions.session.pages is 'How many different pages or products.';
comment on column sessions.session.first_page is 'Page of the earliest event with one; of several at the same time the least by name.';
comment on column sessions.session.last_page is 'Page of the latest event with one; of several at the same time the greatest by name.';
comment on column sessions.session.funnel_step is 'How many steps of the funnel were taken in their order, from 0.';
comment on column sessions.session.converted is 'Whether there was a conversion that did not fail, in or out of the funnel''s order.';
comment on column sessions.session.revenue is 'Money in less money back, exact; below zero where more came back.';
comment on column sessions.session.currency is 'Of the first money that moved; null where none did, XXX where the stream names none.';
comment on column sessions.session.bounce is 'Whether it was so short as the settings say, without a conversion.';
comment on column sessions.session.is_final is 'Nothing of this session changes any more.';
comment on column sessions.session.is_deleted is 'A late event joined it to another session, which is in merged_into; its figures are then those of nothing.';
comment on column sessions.session.merged_into is 'The session_id that goes on, where deleted; null elsewhere.';
comment on column sessions.session.revision is 'Counts the records of the session from 1; the greatest stands.';

create table if not exists sessions.activity (
    minute    timestamptz not null primary key,
    events    bigint      not null,
    users     bigint      not null,
    is_final  boolean     not null,
    revision  bigint      not null
);

comment on table sessions.activity is 'Events and users of each minute, said while the minute goes on and corrected by late events.';
comment on column sessions.activity.minute is 'Its beginning.';
comment on column sessions.activity.events is 'Exact, duplicates left out.';
comment on column sessions.activity.users is 'How many different users, by a sketch: standard error 1.6 %.';
comment on column sessions.activity.is_final is 'Nothing of this minute changes any more.';
comment on column sessions.activity.revision is 'Counts the records of the minute from 1; the greatest stands.';

create table if not exists sessions.revenue (
    minute    timestamptz not null,
    currency  text        not null,
    revenue   numeric not null,
    payments  bigint      not null,
    is_final  boolean     not null,
    revision  bigint      not null,
    primary key (minute, currency)
);

comment on table sessions.revenue is 'Money of each minute and currency, of users and of guests.';
comment on column sessions.revenue.minute is 'Its beginning.';
comment on column sessions.revenue.currency is 'XXX where the stream names none.';
comment on column sessions.revenue.revenue is 'Money in less money back, exact.';
comment on column sessions.revenue.payments is 'How many events moved money, either way.';
comment on column sessions.revenue.is_final is 'Nothing of this minute changes any more.';
comment on column sessions.revenue.revision is 'Counts the records from 1; the greatest stands.';

create table if not exists sessions.active (
    until  timestamptz not null primary key,
    since  timestamptz not null,
    users  bigint      not null
);

comment on table sessions.active is 'How many users there were from since to until; a row each time the window moves on. Never corrected.';
comment on column sessions.active.until is 'Not included.';
comment on column sessions.active.since is 'Included.';
comment on column sessions.active.users is 'By a sketch: standard error 1.6 %.';

create table if not exists sessions.top (
    until   timestamptz not null,
    since   timestamptz not null,
    rank    bigint      not null,
    page    text        not null,
    events  bigint      not null,
    primary key (until, rank)
);

comment on table sessions.top is 'The pages with the most events from since to until, by rank. Never corrected.';
comment on column sessions.top.until is 'Not included.';
comment on column sessions.top.since is 'Included.';
comment on column sessions.top.rank is 'From 1.';
comment on column sessions.top.page is 'A page or product.';
comment on column sessions.top.events is 'Exact, duplicates left out.';
