//! Where pictures go and input comes from: a desktop window, or viewers elsewhere.

use std::time::Instant;

use ash::vk;

use crate::keys::Action;
use wavefield_draw::Picture;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Flight, PresentMode, Queue, SwapchainImage};
use wavefield_run::Engine;

#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The mouse, a key or a touch, in egui's words. Positions are in points.
    Event(egui::Event),
    /// The picture's size in pixels, and the pixels per point.
    Size(vk::Extent2D, f32),
    Close,
}

pub(crate) struct ScreenPicture {
    pub(crate) picture: Picture,
    /// Set if the picture will be presented.
    pub(crate) present: Option<SwapchainImage>,
}

pub(crate) trait Screen {
    /// Ends the command line for this screen.
    fn option(&self) -> &'static str {
        ""
    }

    /// Returns 0x0 until the first picture.
    fn extent(&self) -> vk::Extent2D;

    fn format(&self) -> vk::Format;

    fn modes(&self) -> &[PresentMode];

    fn set_mode(&mut self, mode: PresentMode);

    /// Tells the screen its new size, if known.
    fn resize(&mut self, extent: vk::Extent2D);

    /// Whether the pictures must be made again. The queue must be idle then.
    fn is_stale(&self) -> bool;

    /// Prepares for a new size, or keeps the last one if there is no memory for it. No frame is in flight.
    fn fit(&mut self, _engine: &mut Engine) -> Result<()> {
        Ok(())
    }

    /// Returns the next picture to draw on, if there is one now.
    ///
    /// # Safety
    /// The engine's semaphore of this flight is free: its last submission is done. If [`Screen::is_stale`],
    /// the GPU is done with all earlier pictures.
    unsafe fn acquire(&mut self, queue: &mut Queue, flight: &Flight) -> Result<Option<ScreenPicture>>;

    fn present(&mut self, queue: &mut Queue, canvas: &ScreenPicture) -> Result<()>;

    /// Whether [`Screen::record`] has commands for the next frame.
    fn wants(&mut self) -> bool {
        false
    }

    /// Records commands after the draw.
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass, and is submitted once, after the draw of this screen's
    /// picture. The GPU has finished this flight's earlier commands.
    unsafe fn record(
        &mut self,
        _commands: vk::CommandBuffer,
        _flight: usize,
        _picture: &Picture,
        _frame: u64,
    ) {
    }

    /// Allows recordings of what is shown.
    fn make_readable(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_hidden(&mut self) -> bool;

    /// Returns when the next picture is due, if the screen sets the pace by itself.
    fn due(&self) -> Option<Instant> {
        None
    }

    fn set_title(&mut self, title: &str);

    /// Whether an action is the program's. Others are left to the viewer.
    fn takes(&self, _action: Action) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        false
    }

    fn set_full(&mut self, _full: bool) {}

    /// Puts a command into the clipboard. Returns what to tell the user.
    fn copy(&mut self, text: &str) -> String;

    /// Follows egui's wishes, such as the pointer's form.
    fn follow(&mut self, _wishes: egui::PlatformOutput) {}
}
