//! Checks the stamps in clients' frames under `--verify`, and reports the verdict at the end.

use wavefield_gpu::{Error, Result, note, say};
use wavefield_run::Engine;
use wavefield_run::watch::verify::tally::Counts;

#[derive(Default)]
pub(super) struct Stamps {
    /// The client whose ring is being drawn, and the counts when its ring came into the engine.
    ring: Option<(String, Counts)>,
    /// The first client whose stamps were nearly all wrong.
    unstamped: Option<String>,
}

impl Stamps {
    pub(super) fn begin(&mut self, engine: &Engine, client: &str) {
        self.ring = engine.observers.tally().map(|tally| (client.to_owned(), tally.total()));
    }

    /// Ends the check of the current ring, if any. All of its frames must have been counted.
    pub(super) fn end(&mut self, engine: &Engine) {
        let (Some((client, before)), Some(tally)) = (self.ring.take(), engine.observers.tally()) else {
            return;
        };
        let now = tally.total();
        let checked = now.checked - before.checked;
        let wrong = now.wrong() - before.wrong();
        // Without stamps, the lowest bits are sometimes right by chance.
        if checked > 0 && wrong >= checked - checked / 10 {
            note!(
                "note: {wrong} of {checked} checked stamps of {client} were wrong. --verify is for clients that stamp their \
                 frames: see \"Checked frames\" in docs/protocol.md"
            );
            self.unstamped.get_or_insert(client);
        }
    }

    pub(super) fn verdict(&self, engine: &Engine) -> Result<()> {
        let Some(tally) = engine.observers.tally() else { return Ok(()) };
        let (frames, total, found) = (tally.frames, tally.total(), tally.findings("stamps"));
        say!(
            "checked       {frames} frames, every stamp before and after each draw: {} stale, {} overwritten, {} missing",
            total.stale,
            total.overwritten,
            total.missing
        );
        match found.is_empty() {
            _ if frames == 0 => Err(Error::Check("no frame was drawn, so nothing was checked".into())),
            true => Ok(()),
            false => {
                let why = self.unstamped.as_ref().map_or(String::new(), |client| {
                    format!("; most likely {client} does not stamp its frames, which --verify requires")
                });
                Err(Error::Check(format!("the check found wrong data: {}{why}", found.join("; "))))
            }
        }
    }
}
