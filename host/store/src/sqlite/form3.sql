-- Form 3: who may go on with a session that nobody has. `open_for` keeps the harness that was named last.
ALTER TABLE journal ADD COLUMN is_open    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE journal ADD COLUMN open_for   TEXT;
ALTER TABLE journal ADD COLUMN waiting_ms INTEGER NOT NULL DEFAULT 0;

CREATE INDEX journal_open ON journal (org, open_for) WHERE is_open = 1;
