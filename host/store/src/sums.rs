//! Checksums of what stores keep, so that a store which reads something else than it wrote can say so.

use wharf_core::Seq;

use crate::NewRecord;

/// Of a record at its position.
pub(crate) fn record_sum(seq: Seq, record: &NewRecord) -> i64 {
    sum(&[
        &seq.0.to_le_bytes(),
        record.id.as_str().as_bytes(),
        record.kind.as_bytes(),
        &record.version.to_le_bytes(),
        &record.at_ms.to_le_bytes(),
        record.body.as_bytes(),
    ])
}

/// Of a snapshot up to a position.
pub(crate) fn snapshot_sum(seq: Seq, text: &str) -> i64 {
    sum(&[&seq.0.to_le_bytes(), text.as_bytes()])
}

/// Finds accidents, not attacks: FNV-1a over the parts, each with its length. A database checks its log but perhaps not its
/// pages.
fn sum(parts: &[&[u8]]) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for part in parts {
        add(&(part.len() as u64).to_le_bytes());
        add(part);
    }
    hash.cast_signed()
}
