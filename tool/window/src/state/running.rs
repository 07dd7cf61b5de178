//! The engine, and the hook that works on it between frames. Only this file lets the hook repair the engine.

use std::time::Duration;

use ash::vk;

use super::pictures::{draw_again, pixels};
use crate::reload::Reloader;
use wavefield_draw::OffscreenTarget;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::{Flight, PresentMode};
use wavefield_gpu::{Error, Result, report::Failures};
use wavefield_run::{Choice, Config, Engine, FrameHook, Moment, Parameters};

pub(crate) struct Running {
    // The hook owns a client's memory, so the engine, which waits for the GPU, is dropped first.
    pub(crate) engine: Engine,
    pub(super) hook: Option<Box<dyn FrameHook>>,
    pub(super) config: Config,
    pub(super) parameters: Parameters,
    pub(super) choice: Choice,
    /// The user's own kernel, in the last version that ran.
    pub(super) own: Option<KernelSource>,
    pub(super) reload: Option<Reloader>,
}

impl Running {
    /// Returns whether a frame may begin, which only a hook can prevent.
    pub(crate) fn is_ready(&self) -> bool {
        self.hook.as_ref().is_none_or(|hook| hook.is_ready())
    }

    /// Runs the hook. With `Fifo` or in a hidden window, returns at once, because frames are already paced.
    /// Otherwise waits until it is time to draw.
    pub(super) fn consult(&mut self, is_hidden: bool) -> Result<()> {
        let Some(hook) = &mut self.hook else { return Ok(()) };
        match self.config.present == PresentMode::Fifo || is_hidden {
            true => hook.before_frame(&mut self.engine, &mut self.parameters),
            false => hook.wait(&mut self.engine, &mut self.parameters),
        }
    }

    /// Runs the hook while nothing is drawn because the picture does not change.
    pub(super) fn rest(&mut self) -> Result<()> {
        let Some(hook) = &mut self.hook else { return Ok(()) };
        hook.ignore_gap();
        hook.before_frame(&mut self.engine, &mut self.parameters)
    }

    /// Begins the next frame. Returns `None` while the hook repairs the engine.
    pub(super) fn begin(&mut self) -> Result<Option<Flight>> {
        if !self.is_ready() {
            return Ok(None);
        }
        match self.engine.begin() {
            Err(error) => self.mend(error)?,
            begun => return begun.map(Some),
        }
        self.is_ready().then(|| self.engine.begin()).transpose()
    }

    /// Makes the hook repair the engine: see [`Running::is_ready`]. Without a hook, returns `error`.
    pub(crate) fn mend(&mut self, error: Error) -> Result<()> {
        match &mut self.hook {
            Some(hook) => hook.rescue(&mut self.engine, error),
            None => Err(error),
        }
    }

    /// Like [`Running::mend`], but waits until a frame may begin.
    pub(super) fn recover(&mut self, error: Error) -> Result<()> {
        self.mend(error)?;
        while !self.is_ready() {
            self.consult(true)?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until the GPU has finished every frame. If that takes too long, the hook may drop a client.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.engine.work.drain().or_else(|error| self.recover(error))
    }

    pub(super) fn drawn(&mut self) {
        if let Some(hook) = &mut self.hook {
            hook.drawn();
        }
    }

    pub(super) fn shown_client(&self) -> Option<&str> {
        self.hook.as_ref()?.shown_client()
    }

    pub(super) fn is_still(&self) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.is_still())
    }

    /// Sends a client the picture that it has requested, if any.
    pub(super) fn hand_out_picture(
        &mut self,
        snapshot: &mut Option<OffscreenTarget>,
        like: (vk::Extent2D, vk::Format),
        moment: Moment,
    ) -> Result<()> {
        let Self { engine, hook, .. } = self;
        let Some(hook) = hook.as_mut().filter(|hook| hook.wants_picture()) else { return Ok(()) };
        match draw_again(snapshot, engine, like, moment) {
            Ok(image) => {
                hook.drawn();
                hook.send_picture(like.0, pixels(engine, image));
            }
            // The next frame tries again.
            Err(error) if engine.work.has_failed() => hook.rescue(engine, error)?,
            // No memory for the image, for example. Only the client needs to know.
            Err(error) => hook.send_picture(like.0, Err(error)),
        }
        Ok(())
    }

    pub(super) fn close(&mut self, failures: &mut Failures) {
        if let Some(hook) = &mut self.hook {
            let reason = failures.first().map_or("the renderer was ended".into(), Error::to_string);
            failures.catch(hook.close(&self.engine, &reason));
        }
    }
}
