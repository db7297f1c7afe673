//! What a power cut leaves: for each sector, each size and each name a moment since it was last certain.

use std::collections::BTreeMap;

use crate::SECTOR;
use crate::disk::{Change, Disk, Fate, File, What, index};

/// Which of the things that a power cut may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// Nothing of what is not synced.
    Synced,
    /// All of it.
    Written,
    /// All of it up to some operation, chosen by this seed, of which the first half of the sectors is there.
    Torn(u64),
    /// Any of it in any order, chosen by this seed.
    Scattered(u64),
}

/// Numbers from a seed (SplitMix64), the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers from this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end.max(1) as u64).expect("it is below a usize")
    }
}

/// Chooses moments.
enum Choose {
    Earliest,
    Latest,
    /// Everything before this operation, and half of it.
    Until(usize),
    Any(Random),
}

impl Disk {
    /// The files of an image with their contents.
    pub(crate) fn image(&self, image: Image) -> Vec<(String, Vec<u8>)> {
        let mut choose = match image {
            Image::Synced => Choose::Earliest,
            Image::Written => Choose::Latest,
            Image::Torn(seed) => {
                let waiting = self.names.values().filter_map(|name| self.files.get(name.now?));
                let mut waiting: Vec<usize> = waiting.flat_map(|file| &file.changes).map(|change| change.at).collect();
                waiting.sort_unstable();
                let chosen = Random::new(seed).below(waiting.len());
                Choose::Until(waiting.get(chosen).copied().unwrap_or(usize::MAX))
            }
            Image::Scattered(seed) => Choose::Any(Random::new(seed)),
        };
        let mut files = Vec::new();
        for (name, which) in &self.names {
            let moments = [which.on_disk, which.now];
            let file = match &mut choose {
                Choose::Earliest => which.on_disk,
                Choose::Latest | Choose::Until(_) => which.now,
                Choose::Any(random) => moments[random.below(2)],
            };
            if let Some(file) = file.and_then(|file| self.files.get(file)) {
                files.push((name.clone(), file.image(&mut choose)));
            }
        }
        files
    }
}

impl File {
    fn image(&self, choose: &mut Choose) -> Vec<u8> {
        let sectors = self.sectors();
        let end = sectors.last_key_value().map_or(0, |(last, _)| index((last + 1) * SECTOR));
        let mut content = vec![0; end.max(self.base.len())];
        content[..self.base.len()].copy_from_slice(&self.base);
        let all: Vec<&Change> = self.changes.iter().collect();
        let sizes = choose.how_many(&all, |_| true);
        let size = all[..sizes].iter().fold(self.base.len() as u64, |size, change| change.what.size(size));
        // A truncation is a change of the size: with the former size the former content is there, all of it, and with the new
        // one none of it.
        let sized = all[..sizes].last().map_or(0, |last| last.at);
        for (sector, mut changes) in sectors {
            let cuts = |change: &Change| matches!(change.what, What::Truncate { .. });
            changes.retain(|change| !cuts(change) || change.at <= sized);
            let cut = changes.iter().rposition(|change| cuts(change)).map_or(0, |last| last + 1);
            let reached = choose.how_many(&changes, |write| write.holds_in_first_half(sector)).max(cut);
            for change in &changes[..reached] {
                change.what.apply_to_sector(sector, &mut content);
            }
        }
        content.resize(index(size), 0);
        content
    }

    /// What changes each sector, in order.
    fn sectors(&self) -> BTreeMap<u64, Vec<&Change>> {
        let mut end = self.base.len() as u64;
        let mut sectors = BTreeMap::<u64, Vec<&Change>>::new();
        for change in &self.changes {
            let bytes = match &change.what {
                What::Write { offset, bytes } => *offset..offset + bytes.len() as u64,
                What::Truncate { size } => *size..end.max(*size),
            };
            for sector in bytes.start / SECTOR..bytes.end.div_ceil(SECTOR) {
                sectors.entry(sector).or_default().push(change);
            }
            // A file that was cut and grows again must not show what was there before.
            end = end.max(bytes.end);
        }
        sectors
    }
}

impl Choose {
    /// How many of these changes, from the first, are there. `in_half`: whether the one that is cut in the middle is.
    fn how_many(&mut self, changes: &[&Change], in_half: impl Fn(&What) -> bool) -> usize {
        let certain = changes.iter().rposition(|change| change.fate == Fate::Synced).map_or(0, |last| last + 1);
        match self {
            Self::Earliest => certain,
            Self::Latest => changes.len(),
            Self::Until(at) => {
                let before = |change: &&&Change| change.at < *at || (change.at == *at && in_half(&change.what));
                changes.iter().take_while(before).count().max(certain)
            }
            Self::Any(random) => certain + random.below(changes.len() - certain + 1),
        }
    }
}

impl What {
    /// True if a write that is cut off in the middle has reached this sector.
    fn holds_in_first_half(&self, sector: u64) -> bool {
        match self {
            Self::Write { offset, bytes } => sector < (offset + bytes.len() as u64 / 2) / SECTOR,
            Self::Truncate { .. } => true,
        }
    }

    fn apply_to_sector(&self, sector: u64, content: &mut [u8]) {
        let whole = sector * SECTOR..(sector + 1) * SECTOR;
        match self {
            Self::Write { offset, bytes } => {
                let (start, end) = (whole.start.max(*offset), whole.end.min(offset + bytes.len() as u64));
                content[index(start)..index(end)].copy_from_slice(&bytes[index(start - offset)..index(end - offset)]);
            }
            Self::Truncate { size } => content[index(whole.start.max(*size))..index(whole.end)].fill(0),
        }
    }
}
