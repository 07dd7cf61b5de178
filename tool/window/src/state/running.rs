//! The engine, and the hook that works on it between frames. Only this file lets the hook repair the engine.

use std::time::Duration;

use ash::vk;

use crate::reload::Reloader;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::{Flight, PresentMode};
use wavefield_gpu::{Error, Result};
use wavefield_run::{Choice, ClientPanel, Config, Engine, FrameHook, PanelEvent, Parameters};

pub(crate) struct Running {
    // Fields are dropped in this order: the engine waits for the GPU before the hook frees a client's memory.
    pub(crate) engine: Engine,
    pub(super) hook: Option<Box<dyn FrameHook>>,
    pub(super) config: Config,
    pub(super) parameters: Parameters,
    pub(super) choice: Choice,
    /// The user's own kernel, in the latest version that ran.
    pub(super) own: Option<KernelSource>,
    pub(super) reload: Option<Reloader>,
}

impl Running {
    /// Returns whether a frame may begin, which only a hook can prevent.
    pub(crate) fn is_ready(&self) -> bool {
        self.hook.as_ref().is_none_or(|hook| hook.is_ready())
    }

    /// Runs the hook. With `Fifo`, or while nothing is drawn, returns at once, because the display or the
    /// caller sets the pace. Otherwise waits until it is time to draw.
    pub(super) fn consult(&mut self, draws_nothing: bool) -> Result<()> {
        let Some(hook) = &mut self.hook else { return Ok(()) };
        if let (Some(found), Some(panel)) = (self.engine.observers.take_clicked(), hook.panel()) {
            let values = found.values(self.engine.drawer.named(found.which).0.units);
            panel.push(PanelEvent::Click { array: found.which, index: found.index, values });
        }
        match self.config.present == PresentMode::Fifo || draws_nothing {
            true => hook.before_frame(&mut self.engine, &mut self.parameters),
            false => hook.wait(&mut self.engine, &mut self.parameters),
        }
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

    /// Lets the hook begin to repair the engine, which is done once [`Running::is_ready`] returns true. Fails
    /// with `error` if there is no hook or the hook cannot help.
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

    pub(super) fn panel(&mut self) -> Option<&mut ClientPanel> {
        self.hook.as_mut()?.panel()
    }

    /// Returns whether a client is told of this key. `uses`: whether the window uses it itself.
    pub(super) fn hears(&mut self, key: &str, uses: bool) -> bool {
        self.panel().is_some_and(|panel| panel.hears(key, uses))
    }

    pub(super) fn tell(&mut self, event: PanelEvent) {
        if let Some(panel) = self.panel() {
            panel.push(event);
        }
    }

    /// Looks for the element at a pixel of the picture, if a client wants to know. `consult` tells the client.
    pub(super) fn click(&mut self, at: (f32, f32), picture: vk::Extent2D) -> Result<()> {
        if !self.panel().is_some_and(|panel| panel.wish.clicks) {
            return Ok(());
        }
        let Engine { observers, drawer, work, .. } = &mut self.engine;
        observers.click(work, drawer, at, picture)
    }

    pub(super) fn shown_client(&self) -> Option<&str> {
        self.hook.as_ref()?.shown_client()
    }
}
