//! Blobs as rows of pieces, so that a large one shares the disk with other sessions' records (design section 8).

use rusqlite::{Connection, OptionalExtension as _, params};
use wharf_core::BlobDigest;

use super::failure::Failure;
use super::leases::JournalRow;
use super::schema::Place;
use crate::limits::BLOB_PIECE_BYTES;
use crate::{JournalKey, StoreError};

/// Writes at most about a piece. True if all blobs are whole now; else it is to be called in the next transaction.
///
/// Where it stands is what is in the table, so that an attempt that was undone or cut off by a crash just goes on.
pub(super) fn write(conn: &Connection, journal: i64, blobs: &[(BlobDigest, Vec<u8>)]) -> Result<bool, Failure> {
    let mut room = BLOB_PIECE_BYTES;
    let mut whole = conn.prepare_cached("SELECT 1 FROM blob WHERE journal = ?1 AND digest = ?2")?;
    let mut count = conn.prepare_cached("SELECT count(*) FROM blob_piece WHERE journal = ?1 AND digest = ?2")?;
    let mut insert =
        conn.prepare_cached("INSERT INTO blob_piece (journal, digest, piece, bytes) VALUES (?1, ?2, ?3, ?4)")?;
    let mut finish = conn.prepare_cached("INSERT INTO blob (journal, digest, size) VALUES (?1, ?2, ?3)")?;
    for (digest, bytes) in blobs {
        if whole.exists(params![journal, digest.as_str()])? {
            continue;
        }
        let there: i64 = count.query_row(params![journal, digest.as_str()], |row| row.get(0))?;
        for (number, piece) in (0_i64..).zip(bytes.chunks(BLOB_PIECE_BYTES)).skip(usize::try_from(there).unwrap_or(0)) {
            if piece.len() > room {
                return Ok(false);
            }
            room -= piece.len();
            insert.execute(params![journal, digest.as_str(), number, piece])?;
        }
        finish.execute(params![journal, digest.as_str(), i64::try_from(bytes.len()).unwrap_or(i64::MAX)])?;
    }
    Ok(true)
}

/// See [`crate::Store::blob`].
pub(super) fn read(
    conn: &Connection,
    place: &Place,
    key: &JournalKey,
    digest: &BlobDigest,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(row) = JournalRow::find(conn, key)? else { return Ok(None) };
    let mut find = conn.prepare_cached("SELECT size FROM blob WHERE journal = ?1 AND digest = ?2")?;
    let size: Option<i64> = find.query_row(params![row.id, digest.as_str()], |row| row.get(0)).optional()?;
    let Some(size) = size else { return Ok(None) };
    let mut select =
        conn.prepare_cached("SELECT bytes FROM blob_piece WHERE journal = ?1 AND digest = ?2 ORDER BY piece")?;
    let mut pieces = select.query(params![row.id, digest.as_str()])?;
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next()? {
        bytes.extend_from_slice(piece.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    if i64::try_from(bytes.len()).ok() == Some(size) {
        return Ok(Some(bytes));
    }
    Err(StoreError::Corrupt {
        place: format!("blob {digest} of session {:?} in {}", key.session.as_str(), place.path().display()),
        why: format!("{} of its {size} bytes are there", bytes.len()),
    }
    .into())
}
