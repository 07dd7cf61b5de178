//! How a frame is drawn: the renderer, and the camera's view.

use ash::vk;

use super::commands::Recordings;
use super::raster_choice::RasterChoice;
use wavefield_draw::{ColorMap, FieldRenderer, FieldView, Label, Marks, Picture, Placement};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::Queue;
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::scene::Scene;

pub struct Drawer {
    /// Outside the engine, only to ask: recorded draws depend on it.
    pub renderer: FieldRenderer,
    pub view: FieldView,
    pub(super) scene: Scene,
    pub(super) format: vk::Format,
    pub recordings: Recordings,
    /// Only used if the renderer may choose.
    pub(super) choice: RasterChoice,
    /// The last picture that stays, and the view that it shows.
    pub(super) last: Option<(Picture, FieldView)>,
}

impl Drawer {
    /// Returns the array to draw. For a texture, its size is that of the first level.
    pub fn array(&self) -> &DrawnArray {
        self.renderer.drawing().array()
    }

    /// Returns the last picture, if it stays as it is and another draw of the same frame would look the same.
    pub fn on_screen(&self) -> Option<&Picture> {
        self.last.as_ref().filter(|(_, view)| *view == self.view).map(|(picture, _)| picture)
    }

    /// Says that another draw of the same frame would look different.
    pub fn forget_last(&mut self) {
        self.last = None;
    }

    /// Lets `auto` choose anew what draws.
    pub(super) fn measure_again(&mut self) {
        self.choice = RasterChoice::new(self.array().pieces());
    }

    /// Prepares for pictures of this size. No frame may be in flight.
    pub(super) fn resize(&mut self, queue: &mut Queue, extent: vk::Extent2D) -> Result<()> {
        self.recordings.forget();
        self.last = None;
        self.measure_again();
        self.renderer.resize(queue, extent)
    }

    /// Returns whether the colour map is used.
    pub fn has_colors(&self) -> bool {
        // A texture contains colours, so it needs no colour map.
        self.scene == Scene::Field && self.renderer.drawing().has_color_map()
    }

    /// Returns what is written over the picture.
    pub fn marks(&self, map: ColorMap) -> Marks<'_> {
        Marks::new(self.renderer.drawing(), &self.view, map, self.scene)
    }

    /// Returns the view of array `number` of the slot, and its name, if it has one.
    pub fn named(&self, number: usize) -> (FieldView, Label) {
        self.renderer.drawing().named(number, &self.view)
    }

    /// Returns where the array lies in its view of a picture, if all are images or line plots.
    pub fn image_in(&self, picture: vk::Extent2D) -> Option<Placement> {
        let drawing = self.renderer.drawing();
        let vk::Extent2D { width, height } = drawing.first_view(picture);
        let size = (width, height);
        drawing.is_flat().then(|| Placement::of(self.array(), &self.view.camera, size))
    }
}
