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
    /// A mouse, keyboard or touch event, as egui defines it. Positions are in points.
    Event(egui::Event),
    /// The picture's size in pixels, and the pixels per point.
    Size(vk::Extent2D, f32),
    Close,
}

pub(crate) struct ScreenPicture {
    pub(crate) picture: Picture,
    /// The swapchain's image, if Vulkan will present the picture.
    pub(crate) present: Option<SwapchainImage>,
}

pub(crate) trait Screen {
    /// Returns the options that select this screen, to append to a command line.
    fn option(&self) -> String {
        String::new()
    }

    /// Returns the size of the pictures; 0x0 until the first one.
    fn extent(&self) -> vk::Extent2D;

    fn format(&self) -> vk::Format;

    fn modes(&self) -> &[PresentMode];

    fn set_mode(&mut self, mode: PresentMode);

    /// Tells the screen that its size is now `extent`.
    fn resize(&mut self, extent: vk::Extent2D);

    /// Returns whether the pictures must be recreated, for which the queue must be idle.
    fn is_stale(&self) -> bool;

    /// Prepares for a new size, or keeps the previous size if memory is short. No frame may be in flight.
    fn fit(&mut self, engine: &mut Engine) -> Result<()>;

    /// Returns the next picture to draw on, if one is available.
    ///
    /// # Safety The GPU must have finished the previous submission of `flight`, so that [`Flight::acquired`]
    /// is unsignalled and unused. If [`Screen::is_stale`], the GPU must have finished all earlier pictures.
    unsafe fn acquire(&mut self, queue: &mut Queue, flight: &Flight) -> Result<Option<ScreenPicture>>;

    fn present(&mut self, queue: &mut Queue, canvas: &ScreenPicture) -> Result<()>;

    /// Returns whether [`Screen::record`] has commands for the next frame.
    fn wants(&mut self) -> bool {
        false
    }

    /// Records the screen's own commands, which follow the draw.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass, and must be submitted once, after the draw of
    /// this screen's picture. The GPU must have finished this flight's earlier commands.
    unsafe fn record(
        &mut self,
        _commands: vk::CommandBuffer,
        _flight: usize,
        _picture: &Picture,
        _frame: u64,
    ) {
    }

    /// Allows copies of the pictures, which a recording needs.
    fn make_readable(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_hidden(&mut self) -> bool;

    /// Returns when the next picture is due, if the screen sets the pace by itself.
    fn due(&self) -> Option<Instant> {
        None
    }

    fn set_title(&mut self, title: &str);

    /// Returns whether the program handles this action. If not, the action is left to the viewer's page.
    fn takes(&self, _action: Action) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        false
    }

    fn set_full(&mut self, _full: bool) {}

    /// Copies a command to the clipboard. Returns what to tell the user.
    fn copy(&mut self, text: &str) -> String;

    /// Applies egui's requests, such as the shape of the cursor.
    fn follow(&mut self, _wishes: egui::PlatformOutput) {}
}
