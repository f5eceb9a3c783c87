//! The versions of the messages that each end reads.

/// A version of the messages; a receiver refuses any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The one before.
    Before = 5,
    /// The latest.
    #[default]
    Latest = 6,
}

impl Version {
    /// Every version that is read, the latest first.
    pub const ALL: [Self; 2] = [Self::Latest, Self::Before];

    /// The byte that a message of this version begins with.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Makes an encoded reply one of this version. It has the same form in both, if [`super::Settled::But`] is not in it.
    pub(super) fn put(self, message: &mut [u8]) {
        if let Some(first) = message.first_mut() {
            *first = self.byte();
        }
    }

    pub(super) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.byte() == byte)
    }
}
