//! A window without a display: draws into an image, and sends the pictures to viewers.

use std::time::{Duration, Instant};

use ash::vk;

use crate::keys::Action;
use crate::screen::{Input, RemoteViewer, Screen, ScreenPicture, ViewerEvent};
use wavefield_draw::{OffscreenTarget, Picture};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Flight, PresentMode, Queue};
use wavefield_run::Engine;
use wavefield_run::watch::recording::Copies;

/// 62.5 pictures a second, a few more than most displays show.
const PERIOD: Duration = Duration::from_millis(16);

pub(crate) struct Offscreen {
    target: Option<OffscreenTarget>,
    /// The size that viewers asked for last, and the last one that there was memory for.
    extent: vk::Extent2D,
    fitting: vk::Extent2D,
    scale: f32,
    /// Pictures on their way to the viewers, by the numbers of their frames.
    copies: Copies<u64>,
    mode: PresentMode,
    due: Instant,
    /// Whether clients are served: they wait for draws, even if nobody looks.
    serves: bool,
    failed: bool,
    device: Device,
    remote: Box<dyn RemoteViewer>,
}

impl Offscreen {
    pub(crate) fn new(
        device: &Device,
        extent: vk::Extent2D,
        mode: PresentMode,
        (remote, serves): (Box<dyn RemoteViewer>, bool),
    ) -> Self {
        Self {
            target: None,
            extent,
            fitting: extent,
            scale: 1.0,
            copies: Copies::new(device),
            mode,
            due: Instant::now(),
            serves,
            failed: false,
            device: device.clone(),
            remote,
        }
    }

    pub(crate) fn inputs(&mut self) -> Vec<Input> {
        self.remote.inputs()
    }

    /// Sets when the next picture is due, without drifting.
    fn go_on(&mut self) {
        self.due = (self.due + PERIOD).max(Instant::now() - PERIOD);
    }

    pub(crate) fn wait(&mut self, until: Instant) {
        self.remote.wait(until);
    }
}

impl Screen for Offscreen {
    const OPTION: &str = " --web";

    fn extent(&self) -> vk::Extent2D {
        self.target.as_ref().map_or(vk::Extent2D::default(), |target| target.image().extent())
    }

    fn format(&self) -> vk::Format {
        OffscreenTarget::FORMAT
    }

    fn modes(&self) -> &[PresentMode] {
        &[PresentMode::Fifo, PresentMode::Immediate]
    }

    fn set_mode(&mut self, mode: PresentMode) {
        self.mode = mode;
    }

    fn scale(&self) -> f32 {
        self.scale
    }

    fn resize(&mut self, extent: vk::Extent2D, scale: f32) {
        (self.extent, self.scale) = (extent, scale);
    }

    fn is_stale(&self) -> bool {
        self.extent() != self.extent
    }

    fn fit(&mut self, engine: &mut Engine) -> Result<()> {
        let mut make = |extent| -> Result<()> {
            // Drop the old one first, so that the two never exist at once.
            self.target = None;
            engine.drawer.resize(extent)?;
            self.target = Some(OffscreenTarget::new(&self.device, extent, OffscreenTarget::FORMAT)?);
            Ok(())
        };
        if let Err(error) = make(self.extent) {
            let vk::Extent2D { width, height } = self.extent;
            wavefield_gpu::note!("note: the picture cannot have {width}x{height} pixels: {error}");
            self.extent = self.fitting;
            make(self.extent)?;
        }
        self.fitting = self.extent;
        Ok(())
    }

    unsafe fn acquire(&mut self, _queue: &mut Queue, _flight: &Flight) -> Result<Option<ScreenPicture>> {
        Ok(self.target.as_ref().map(|target| ScreenPicture { picture: target.picture(), present: None }))
    }

    fn present(&mut self, _queue: &mut Queue, _canvas: &ScreenPicture) -> Result<()> {
        if self.mode == PresentMode::Fifo {
            self.go_on();
        }
        Ok(())
    }

    fn wants(&mut self) -> bool {
        let is_due = self.mode == PresentMode::Fifo || Instant::now() >= self.due;
        is_due && self.remote.is_watched() && self.copies.pending().is_empty()
    }

    unsafe fn record(&mut self, commands: vk::CommandBuffer, flight: usize, picture: &Picture, frame: u64) {
        // SAFETY: the caller's promise.
        let recorded = unsafe { self.copies.record(commands, flight, picture, frame) };
        let failed = recorded.is_err();
        if let Err(error) = recorded
            && !self.failed
        {
            wavefield_gpu::note!("note: no picture is sent: {error}");
        }
        self.failed = failed;
        if self.mode != PresentMode::Fifo {
            self.go_on();
        }
    }

    fn collect(&mut self, engine: &mut Engine) -> Result<()> {
        for (frame, flight) in self.copies.pending() {
            if self.mode == PresentMode::Fifo {
                // There is time until the next picture.
                engine.work.wait_drawn(frame + 1)?;
            } else if engine.work.drawn()? <= frame {
                break;
            }
            if let Some((_, pixels)) = self.copies.take(flight) {
                self.remote.send(pixels?);
            }
        }
        Ok(())
    }

    fn is_hidden(&self) -> bool {
        !self.serves && !self.remote.is_watched()
    }

    fn due(&self) -> Option<Instant> {
        (self.mode == PresentMode::Fifo).then_some(self.due)
    }

    fn set_title(&mut self, title: &str) {
        self.remote.send_event(ViewerEvent::Title(title.to_owned()));
    }

    /// A viewer sees no files of this machine, and does not end what others look at.
    fn takes(&self, action: Action) -> bool {
        !matches!(action, Action::Picture | Action::Record | Action::FullScreen | Action::Leave)
    }

    fn copy(&mut self, text: &str) -> String {
        self.remote.send_event(ViewerEvent::Copy(text.to_owned()));
        format!("sent to the page: {text}")
    }
}
