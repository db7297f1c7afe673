-- What a host's role needs, and no more: it reads and writes through wharf's tables and functions, and makes nothing.
--
--   psql -d DATABASE -v role=wharf_host -f roles.sql
--
-- as the owner of the tables, once they are there: let one host make them with a role that may, or `wharf doctor`. The
-- hosts themselves then run with the role that is named here.

GRANT USAGE ON SCHEMA wharf TO :"role";
GRANT SELECT ON wharf.form TO :"role";
GRANT SELECT, INSERT, UPDATE ON wharf.journal TO :"role";
GRANT SELECT, INSERT, DELETE ON wharf.record TO :"role";
GRANT SELECT, INSERT, UPDATE, DELETE ON wharf.snapshot, wharf.inbox, wharf.blob, wharf.blob_piece TO :"role";
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA wharf TO :"role";
