//! The answer of a host function instead of its work.

/// The answer to one call of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The host does what was asked.
    Work,
    /// The host does nothing, writes nothing, and returns this.
    Status(u32),
    /// "OK", with a null pointer and no bytes; a number reads as zero. A function that returns nothing works.
    Nothing,
    /// "OK", with these bytes. A function that returns no bytes works.
    Bytes(Vec<u8>),
    /// "OK", after asking the module for memory each time, with these bytes there, or at a place that is not the
    /// module's to name. A function that returns no bytes works.
    Stray {
        /// The memory that it asks for.
        asks: Vec<u32>,
        /// The place of the answer; none if it is in the first memory that it got.
        place: Option<u32>,
        /// The length of the answer.
        bytes: u32,
    },
    /// "OK", with this number: a time, a token, a metric's id, a compare-and-swap number beside the
    /// value that is there. A function that returns no number works.
    Number(u64),
}

/// Decides answers: gets the function's name and which call of it this is, from 1.
pub struct Script(Box<Answers>);

type Answers = dyn FnMut(&str, u32) -> Answer;

impl Default for Script {
    fn default() -> Self {
        Self::work()
    }
}

impl Script {
    /// A host that works.
    pub fn work() -> Self {
        Self::of(|_, _| Answer::Work)
    }

    /// `answer` to every call of `function`.
    pub fn always(function: &str, answer: Answer) -> Self {
        let function = function.to_owned();
        Self::of(move |called, _| if called == function { answer.clone() } else { Answer::Work })
    }

    /// `answer` to call `nth` of `function`, from 1.
    pub fn only(function: &str, nth: u32, answer: Answer) -> Self {
        let function = function.to_owned();
        Self::of(move |called, n| if called == function && n == nth { answer.clone() } else { Answer::Work })
    }

    /// Any answers.
    pub fn of(answers: impl FnMut(&str, u32) -> Answer + 'static) -> Self {
        Self(Box::new(answers))
    }

    pub(super) fn answer(&mut self, function: &str, nth: u32) -> Answer {
        (self.0)(function, nth)
    }
}
