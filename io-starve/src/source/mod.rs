//! Where observations come from: the kernel, a recording, or a trace that another program recorded. In: a clock and a reader. Out: one
//! [`Observation`] at a time, in order. A source refuses to judge: it only delivers.

mod blktrace;
mod ftrace;
pub mod input;
mod lines;
pub mod live;
pub mod recording;
pub mod replay;
pub mod trace;

use crate::{kernel::ReadError, model::observation::Observation};

/// Delivers observations one by one.
#[expect(
    async_fn_in_trait,
    reason = "everything runs on one thread, nobody needs the future to be Send"
)]
pub trait Source {
    /// The next observation, `None` after the last one. Safe to drop before it is ready: nothing is lost.
    ///
    /// # Errors
    /// When the source cannot deliver any more.
    async fn next(&mut self) -> Result<Option<Observation>, ReadError>;

    /// What happened since the last observation, for a run that ends now; `None` when that cannot be asked for.
    ///
    /// # Errors
    /// When the source cannot deliver any more.
    fn last(&mut self) -> Result<Option<Observation>, ReadError> {
        Ok(None)
    }
}
