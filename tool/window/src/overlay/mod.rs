//! The overlay of the window: frame times, their parts, and the settings. It costs nothing while hidden.
//!
//! egui lays it out every 50 ms, and on input. Frames in between draw the same layout again.

mod boxes;
mod client_panel;
mod cost;
mod figures;
mod graph;
mod lanes;
mod look;
mod panel;
mod watch;

use std::time::{Duration, Instant};

use ash::vk;
use egui::{
    Align2, Context, Event, Frame, Panel, PlatformOutput, Popup, Pos2, RawInput, Rect, RichText, Ui,
    ViewportId, vec2,
};
use vulkan_cuda::ring::MAX_DEPTH;

use self::boxes::Boxes;
use self::cost::OverlayCost;
use self::figures::{Cost, change};
use self::look::{ACCENT, DRAW, KERNEL, NEITHER, PAPER};
pub(super) use self::panel::{settings, shown};
use self::watch::Watched;
use crate::screen::Screen;
use wavefield_draw::{FieldView, Painter, Painting, Picture};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::Queue;
use wavefield_run::{Choice, ClientPanel, Config, Engine, OverlayMode, Parameters};

/// The frames in flight of the deepest ring, plus the one that is being recorded.
const FLIGHTS: usize = MAX_DEPTH as usize + 1;
const MOST_EVENTS: usize = 1024;
const EVERY: Duration = Duration::from_millis(50);
/// The smallest window that has room for the panel, in points.
const SMALLEST: egui::Vec2 = vec2(560.0, 360.0);

pub(super) struct OverlayView<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) config: &'a Config,
    pub(super) choice: &'a Choice,
    /// The user's own kernel, if the run began with one.
    pub(super) own: Option<&'a KernelSource>,
    pub(super) screen: &'a dyn Screen,
    pub(super) serves: bool,
    /// Whether a client's frames are shown and do not change by themselves, so there is nothing to pause.
    pub(super) still: bool,
    /// What the client wants to be shown, if its array is.
    pub(super) panel: Option<&'a mut ClientPanel>,
}

impl OverlayView<'_> {
    /// Returns why CUDA cannot fill the field here; `None` if it can.
    fn no_cuda(&self) -> Option<&str> {
        let reason = self.choice.fallback.as_deref().unwrap_or("CUDA does not share this device");
        self.choice.twin.is_none().then_some(reason)
    }
}

#[derive(Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) parameters: Parameters,
    pub(super) values: Vec<f32>,
    /// The limits and the size of points change; the camera is not taken from here.
    pub(super) view: FieldView,
    pub(super) step: bool,
    /// A command for the clipboard.
    pub(super) copy: Option<String>,
}

pub(super) struct Overlay {
    began: Instant,
    egui: Context,
    /// Pixels per egui point.
    pub(super) scale: f32,
    input: RawInput,
    painter: Painter,
    painting: Painting,
    mode: OverlayMode,
    hidden: OverlayMode,
    /// When the next layout is due, at the latest.
    next: Instant,
    /// The area that no panel covers.
    free: Rect,
    /// What the last layout's axes are for.
    seen: Option<FieldView>,
    pub(super) boxes: Boxes,
    watched: Watched,
    pub(super) cost: OverlayCost,
}

impl Overlay {
    /// Creates the overlay. Uploads all glyphs now, because a later upload would have to wait for the queue.
    pub(super) fn new(
        egui: Context,
        scale: f32,
        queue: &mut Queue,
        format: vk::Format,
        mode: OverlayMode,
    ) -> Result<Self> {
        look::set_up(&egui);
        let largest = queue.device().info().largest_picture as usize;
        let mut overlay = Self {
            began: Instant::now(),
            egui,
            scale,
            input: RawInput { focused: false, max_texture_side: Some(largest), ..RawInput::default() },
            painter: Painter::new(queue, format, FLIGHTS)?,
            painting: Painting::default(),
            mode,
            hidden: if mode == OverlayMode::Legend { mode } else { OverlayMode::Off },
            next: Instant::now(),
            free: Rect::EVERYTHING,
            seen: None,
            boxes: Boxes::default(),
            watched: Watched::default(),
            cost: OverlayCost::new(queue.device())?,
        };
        let raw = overlay.take_input(vk::Extent2D { width: 1280, height: 720 });
        let output = overlay.egui.run_ui(raw, look::every_glyph);
        overlay.painter.upload(queue, output.textures_delta)?;
        Ok(overlay)
    }

    /// Passes an event to the overlay. Returns whether only the overlay handles it.
    pub(super) fn on_event(&mut self, event: &Event) -> bool {
        // Track the focus even while the overlay is hidden.
        if let Event::WindowFocused(focused) = event {
            self.input.focused = *focused;
        } else if !self.has_something() {
            return false;
        }
        // Only a layout takes the events, so they accumulate while nothing is drawn.
        if self.input.events.len() < MOST_EVENTS {
            if let Event::Key { modifiers, .. }
            | Event::PointerButton { modifiers, .. }
            | Event::MouseWheel { modifiers, .. } = event
            {
                self.input.events.push(Event::ModifiersChanged(*modifiers));
            }
            self.input.events.push(event.clone());
        }
        self.lay_out_soon();
        match event {
            // All other pointer events also reach the camera: a drag may continue over a panel and end there.
            Event::PointerButton { pressed: true, pos, .. } => self.covers(*pos),
            Event::MouseWheel { .. } | Event::Zoom(_) => {
                // The pointer may have moved since the last layout.
                let moved = self.input.events.iter().rev().find_map(|event| match event {
                    Event::PointerMoved(pos) => Some(*pos),
                    _ => None,
                });
                moved.map_or_else(|| self.egui.egui_wants_pointer_input(), |pos| self.covers(pos))
            }
            Event::Key { .. } | Event::Text(_) => self.egui.egui_wants_keyboard_input(),
            _ => false,
        }
    }

    /// Returns whether the overlay covers `at`. egui itself knows only where the pointer was at the last
    /// layout, not where a new touch is.
    fn covers(&self, at: Pos2) -> bool {
        self.egui.egui_is_using_pointer()
            || self
                .egui
                .layer_id_at(at)
                .is_some_and(|layer| layer.order != egui::Order::Background || !self.free.contains(at))
    }

    pub(super) fn lay_out_soon(&mut self) {
        self.next = Instant::now();
    }

    fn is_on(&self) -> bool {
        self.mode == OverlayMode::On
    }

    pub(super) fn toggle(&mut self, engine: &mut Engine) -> Result<()> {
        self.mode = if self.is_on() { self.hidden } else { OverlayMode::On };
        self.lay_out_soon();
        Popup::close_all(&self.egui);
        if !self.is_on() {
            engine.observers.watched = None;
            engine.observers.unpoint(&mut engine.work, &mut engine.drawer)?;
        }
        Ok(())
    }

    /// Closes an open list, or else the list of keys. Returns false if neither is open.
    pub(super) fn close_innermost(&mut self) -> bool {
        if self.is_on() && Popup::is_any_open(&self.egui) {
            Popup::close_all(&self.egui);
            return true;
        }
        std::mem::take(&mut self.boxes.help)
    }

    pub(super) fn has_notice(&self) -> bool {
        self.mode != OverlayMode::Off && self.boxes.notice.is_some()
    }

    fn has_something(&self) -> bool {
        self.mode != OverlayMode::Off || self.boxes.stay()
    }

    pub(super) fn ignore_gap(&mut self) {
        self.watched.figures.ignore_gap(Instant::now());
    }

    pub(super) fn switched(&mut self, settings: Vec<String>) {
        self.watched.figures.switched(settings);
        self.watched.frozen = None;
    }

    pub(super) fn parts(&self) -> Option<String> {
        self.watched.figures.mean().map(|mean| mean.text())
    }

    /// Returns whether to lay out. Axes follow the camera with each frame.
    pub(super) fn is_due(&self, view: &FieldView) -> bool {
        let has_moved = view.look.axes && self.seen != Some(*view);
        self.has_something() && (has_moved || Instant::now() >= self.next)
    }

    /// Lays out the overlay. Returns the settings that the user wants, if they differ from the current ones.
    pub(super) fn lay_out(
        &mut self,
        view: &mut OverlayView<'_>,
        parameters: &Parameters,
    ) -> Result<(Option<Draft>, PlatformOutput)> {
        let now = Instant::now();
        self.next = now + EVERY;
        self.seen = Some(view.engine.drawer.view);
        self.boxes.notice.take_if(|(_, until)| *until < now);
        if self.is_on() && !view.serves {
            self.watched.watch(view.engine, now, self.cost.gpu)?;
        }
        if self.mode != OverlayMode::Off {
            self.point(view)?;
        }
        let before = Draft {
            config: view.config.clone(),
            parameters: *parameters,
            values: view.engine.work.producer.parameters.to_vec(),
            view: view.engine.drawer.view,
            step: false,
            copy: None,
        };
        let mut draft = before.clone();
        let egui = self.egui.clone();
        let raw = self.take_input(view.screen.extent());
        let output = egui.run_ui(raw, |ui| {
            self.show(ui, view, &mut draft);
            self.free = ui.available_rect_before_wrap();
        });
        let mut textures = output.textures_delta;
        if !textures.is_empty() {
            // A glyph was not uploaded at the start, or the screen's scale has changed.
            view.engine.work.drain().inspect_err(|_| textures.clear())?;
            self.painter.upload(view.engine.queue(), textures)?;
        }
        self.painting = self.painter.prepare(&egui, output.shapes, output.pixels_per_point);
        self.cost.spend(now.elapsed());
        Ok(((draft != before).then_some(draft), output.platform_output))
    }

    fn take_input(&mut self, extent: vk::Extent2D) -> RawInput {
        let viewport = self.input.viewports.entry(ViewportId::ROOT).or_default();
        viewport.native_pixels_per_point = Some(self.scale);
        let size = vec2(extent.width as f32, extent.height as f32) / (self.scale * self.egui.zoom_factor());
        RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, size)),
            time: Some(self.began.elapsed().as_secs_f64()),
            ..self.input.take()
        }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.has_something() && !self.painting.is_empty()
    }

    /// Records the overlay over a picture. The GPU must have finished the flight's earlier commands. Call
    /// [`OverlayCost::end`] after the last command of the frame.
    ///
    /// # Safety
    /// See [`Painter::record`].
    pub(super) unsafe fn record(
        &mut self,
        commands: vk::CommandBuffer,
        flight: usize,
        picture: &Picture,
    ) -> Result<()> {
        let began = Instant::now();
        self.cost.begin(commands, flight)?;
        // SAFETY: the caller upholds the contract of `Painter::record`.
        unsafe { self.painter.record(commands, picture, &self.painting) }?;
        self.cost.spend(began.elapsed());
        Ok(())
    }

    fn point(&mut self, view: &mut OverlayView<'_>) -> Result<()> {
        let pointer = self.egui.pointer_latest_pos().filter(|_| !self.egui.is_pointer_over_egui());
        let scale = self.egui.pixels_per_point();
        let at = pointer.map(|at| (at.x * scale, at.y * scale));
        let Engine { observers, drawer, work, .. } = &mut *view.engine;
        if observers.point(work, drawer, at, view.screen.extent())? {
            self.ignore_gap();
        }
        Ok(())
    }

    fn show(&mut self, ui: &mut Ui, view: &mut OverlayView<'_>, draft: &mut Draft) {
        let egui = &ui.ctx().clone();
        let panel = Frame::new().fill(PAPER).inner_margin(10.0);
        let has_room = egui.content_rect().size().min(SMALLEST) == SMALLEST;
        if self.is_on() && view.still && has_room {
            // The panel has few rows here, so it takes only the space that it needs.
            egui::Area::new("left".into()).fixed_pos(Pos2::ZERO).show(egui, |ui| {
                panel.show(ui, |ui| {
                    ui.set_max_width(268.0);
                    self.left(ui, view, draft);
                });
            });
        } else if self.is_on() && has_room {
            Panel::left("left").frame(panel).resizable(false).exact_size(288.0).show(ui, |ui| {
                egui::ScrollArea::vertical().show(ui, |ui| self.left(ui, view, draft));
            });
            let lanes = Panel::bottom("lanes").frame(panel).resizable(false);
            lanes.show(ui, |ui| self.watched.lanes(ui, view, draft.parameters.paused));
        }
        let mut covered = 0.0;
        if self.mode != OverlayMode::Off && !(self.is_on() && has_room) {
            covered = client_panel::area(egui, panel, view.panel.as_deref_mut());
        }
        // Paint on the background layer, not on a panel, so that the picture still receives the pointer.
        let paint = egui.layer_painter(egui::LayerId::background());
        let picture = ui.available_rect_before_wrap();
        if self.mode != OverlayMode::Off {
            let marks = view.engine.drawer.marks(draft.parameters.colormap);
            marks.paint(&paint, egui.content_rect(), picture, true);
            if let (Some(found), Some(at)) =
                (view.engine.observers.under_pointer(), egui.pointer_latest_pos())
            {
                let (its, name) = view.engine.drawer.named(found.which);
                graph::found(&paint, at, &graph::words(&found, view.serves, its.units, name.text()));
            }
        }
        if self.is_on() && !has_room {
            let words = format!("the panel needs {}x{}", SMALLEST.x, SMALLEST.y);
            let at = picture.left_bottom() + vec2(8.0, -8.0);
            boxes::caption(&paint, at, Align2::LEFT_BOTTOM, &words, None);
        }
        let picture = picture.with_min_y(picture.top() + covered);
        self.boxes.show(egui, picture, view, self.mode != OverlayMode::Off);
    }

    fn left(&self, ui: &mut Ui, view: &mut OverlayView<'_>, draft: &mut Draft) {
        let device = &view.engine.device().info().name;
        ui.label(RichText::new("wavefield").size(17.0).strong());
        let what = format!("{} on {device}", view.engine.work.producer.profile().name);
        ui.add(egui::Label::new(RichText::new(what).weak()).truncate());
        ui.add_space(6.0);
        client_panel::show(ui, view.panel.as_deref_mut());
        panel::show(ui, view, draft);
        ui.separator();
        if view.serves {
            return;
        }
        let settings = settings(view.config, view.engine);
        let figures = &self.watched.figures;
        if let (Some(before), Some(mean)) = (&figures.before, figures.mean()) {
            let now = Cost { settings: settings.clone(), mean };
            ui.label(RichText::new(change(before, &now, figures.is_settled())).color(ACCENT));
        }
        graph::figures(ui, figures, &settings[0], self.cost.cpu);
        ui.label(RichText::new("Tab hides this panel, F1 lists the keys.").weak().small());
    }
}
