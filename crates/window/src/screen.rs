//! Where pictures go, and where input comes from: a window of the desktop, or somebody elsewhere.

use std::time::Instant;

use ash::vk;

use crate::keys::Action;
use wavefield_base::Result;
use wavefield_engine::Engine;
use wavefield_gpu::vulkan::{Flight, PresentMode, Queue, SwapchainImage};
use wavefield_render::Picture;
use wavefield_watch::recording::Pixels;

/// What the user does.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The mouse, a key or a touch, in egui's words. Positions are in points.
    Event(egui::Event),
    /// The picture's size in pixels, and the pixels of a point.
    Size(vk::Extent2D, f32),
    Close,
}

/// Viewers outside this process, and their input.
pub trait Remote {
    /// What they did since the last call.
    fn inputs(&mut self) -> Vec<Input>;

    fn is_watched(&self) -> bool;

    /// Takes a picture: sRGB RGBA. Does not wait.
    fn send(&mut self, picture: Pixels);

    fn tell(&mut self, news: News);

    /// Returns at this time, or earlier if there is input.
    fn wait(&mut self, until: Instant);
}

/// Sent to every viewer.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Title(String),
    /// Text for the clipboard.
    Copy(String),
}

pub(crate) struct Canvas {
    pub(crate) picture: Picture,
    /// If it will be presented.
    pub(crate) present: Option<SwapchainImage>,
}

pub(crate) trait Screen {
    /// Whether its pictures are presented by Vulkan.
    const PRESENTS: bool = false;
    /// What the command for this screen has at its end.
    const OPTION: &str = "";

    /// 0x0 until the first picture.
    fn extent(&self) -> vk::Extent2D;

    fn format(&self) -> vk::Format;

    fn modes(&self) -> &[PresentMode];

    fn set_mode(&mut self, mode: PresentMode);

    /// Pixels per egui point.
    fn scale(&self) -> f32;

    /// Tells the screen its new size, if known.
    fn resize(&mut self, extent: vk::Extent2D, scale: f32);

    /// Whether the pictures must be made again. The queue must be idle then.
    fn is_stale(&self) -> bool;

    /// Makes what a new size needs, or goes back to the last one if there is no memory for it. No frame is in flight.
    fn fit(&mut self, _engine: &mut Engine) -> Result<()> {
        Ok(())
    }

    /// The next picture to draw on; `None` if there is none now.
    ///
    /// # Safety
    /// The engine's semaphore of this flight is free: its last submission is done. If [`Screen::is_stale`], the GPU is done
    /// with all earlier pictures.
    unsafe fn acquire(&mut self, queue: &mut Queue, flight: &Flight) -> Result<Option<Canvas>>;

    /// Shows the picture, once the GPU has drawn it.
    fn present(&mut self, queue: &mut Queue, canvas: &Canvas) -> Result<()>;

    /// Whether [`Screen::record`] has commands for the next frame.
    fn wants(&mut self) -> bool {
        false
    }

    /// Records commands behind the draw.
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass, and is submitted once, after the draw of this screen's picture. The GPU has
    /// finished this flight's earlier commands.
    unsafe fn record(
        &mut self,
        _commands: vk::CommandBuffer,
        _flight: usize,
        _picture: &Picture,
        _frame: u64,
    ) {
    }

    /// Sends what was drawn and is done.
    fn collect(&mut self, _engine: &mut Engine) -> Result<()> {
        Ok(())
    }

    /// Allows recordings of what is shown.
    fn make_readable(&mut self) -> Result<()> {
        Ok(())
    }

    /// Looks whether anything is visible.
    fn look(&mut self, _now: Instant) {}

    fn is_hidden(&self) -> bool;

    /// When the next picture is due, if the screen sets the pace by itself.
    fn due(&self) -> Option<Instant> {
        None
    }

    fn set_title(&mut self, title: &str);

    /// Whether an action is the program's. Others are left to whoever looks.
    fn takes(&self, _action: Action) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        false
    }

    fn set_full(&mut self, _full: bool) {}

    /// Puts a command into the clipboard. Returns what to tell the user.
    fn copy(&mut self, text: &str) -> String;

    /// egui's wishes, such as the pointer's form.
    fn follow(&mut self, _wishes: egui::PlatformOutput) {}
}
