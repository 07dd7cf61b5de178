use super::probe::Probe;
use crate::watch::observer::Observer;
use crate::watch::trace::{Recorder, Track};
use crate::watch::verify::Check;

pub(super) struct Observers {
    /// For `wavefield verify`.
    pub(super) check: Option<Check>,
    /// For `--trace`.
    pub(super) recorder: Option<Recorder>,
    pub(super) traced: Option<Track>,
    /// For [`super::Engine::watch`].
    pub(super) live: Option<Recorder>,
    /// For [`super::Engine::point`].
    pub(super) probe: Option<Probe>,
}

impl Observers {
    pub(super) fn read_by_compute(&self) -> bool {
        self.check.is_some() || self.probe.is_some()
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &dyn Observer> {
        let check = self.check.as_ref().map(|check| check as &dyn Observer);
        let recorders = [&self.recorder, &self.live].into_iter().flatten();
        let probe = self.probe.as_ref().map(|probe| probe as &dyn Observer);
        check.into_iter().chain(recorders.map(|recorder| recorder as &dyn Observer)).chain(probe)
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn Observer> {
        let check = self.check.as_mut().map(|check| check as &mut dyn Observer);
        let recorders = [&mut self.recorder, &mut self.live].into_iter().flatten();
        let probe = self.probe.as_mut().map(|probe| probe as &mut dyn Observer);
        check.into_iter().chain(recorders.map(|recorder| recorder as &mut dyn Observer)).chain(probe)
    }
}
