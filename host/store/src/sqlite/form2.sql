-- Form 2: a session can be deleted. Its row stays as the mark, so that the name is not used again; NULL for all others.
ALTER TABLE journal ADD COLUMN deleted_by TEXT;
ALTER TABLE journal ADD COLUMN deleted_ms INTEGER;
