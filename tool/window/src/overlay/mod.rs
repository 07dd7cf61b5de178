//! The overlay of the window: frame times, their parts, and the settings. It costs nothing while hidden.
//!
//! egui lays it out a few times a second, and on input. Frames in between draw the same layout again.

mod boxes;
mod figures;
mod graph;
mod lanes;
mod look;
mod panel;
mod watch;

use std::time::{Duration, Instant};

use ash::vk;
use egui::{
    Align2, Color32, Context, Event, Frame, PlatformOutput, Popup, Pos2, RawInput, Rect, RichText, SidePanel,
    TopBottomPanel, Ui, ViewportId, vec2,
};
use vulkan_cuda::ring::MAX_DEPTH;

use self::figures::{Cost, Figures, change};
use self::look::{ACCENT, DRAW, KERNEL, NEITHER, PAPER};
pub(super) use self::panel::settings;
use crate::keys::Action;
use wavefield_draw::{Painter, Painting, Picture};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::{PresentMode, Queue, Timestamps};
use wavefield_run::{Choice, Config, Engine, OverlayMode, Parameters};

/// The deepest ring's frames in flight, and one that is recorded.
const FLIGHTS: usize = MAX_DEPTH as usize + 1;
const MOST_EVENTS: usize = 1024;
const EVERY: Duration = Duration::from_millis(50);
const NOTICE: Duration = Duration::from_secs(12);

pub(super) struct OverlayView<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) config: &'a Config,
    pub(super) choice: &'a Choice,
    /// The user's own kernel, if the run began with one.
    pub(super) own: Option<&'a KernelSource>,
    pub(super) modes: &'a [PresentMode],
    /// Why CUDA cannot fill the field here; `None` if it can.
    pub(super) no_cuda: Option<&'a str>,
    pub(super) command: &'a dyn Fn() -> String,
    pub(super) extent: vk::Extent2D,
    /// Pixels per egui point.
    pub(super) scale: f32,
    pub(super) takes: &'a dyn Fn(Action) -> bool,
    pub(super) serves: bool,
    /// Whether a client's frames are shown that do not move by themselves.
    pub(super) still: bool,
}

pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) parameters: Parameters,
    pub(super) values: Vec<f32>,
    pub(super) step: bool,
    pub(super) copy: bool,
}

pub(super) struct Overlay {
    began: Instant,
    egui: Context,
    input: RawInput,
    painter: Painter,
    painting: Painting,
    mode: OverlayMode,
    hidden: OverlayMode,
    help: bool,
    /// Whether a key has started a recording.
    records: bool,
    /// When to lay out again, at the latest.
    next: Instant,
    figures: Figures,
    frozen: Option<lanes::LaneFrames>,
    paused: bool,
    /// When the clocks of the lanes were last tied.
    tied: Instant,
    notice: Option<(String, Instant)>,
    /// Where no panel is.
    free: Rect,
    /// Stays until it is fixed, and is shown even while the rest is hidden.
    problem: Option<String>,
    /// The overlay's CPU time per frame, in seconds, smoothed.
    cost: f64,
    /// Start and end of the commands after the draw, on the GPU.
    marks: Option<Timestamps<2>>,
    marked: [bool; FLIGHTS],
    /// The overlay's GPU time per frame, a film's copy included, in seconds, smoothed.
    gpu_cost: f64,
}

impl Overlay {
    /// Uploads all glyphs now, because an upload waits for the queue.
    pub(super) fn new(
        egui: &Context,
        scale: f32,
        queue: &mut Queue,
        format: vk::Format,
        mode: OverlayMode,
    ) -> Result<Self> {
        egui.set_visuals(look::visuals());
        egui.set_fonts(look::fonts());
        // The camera counts pixels.
        egui.options_mut(|options| options.zoom_with_keyboard = false);
        let largest = queue.device().info().largest_picture as usize;
        let painter = Painter::new(queue, format, FLIGHTS)?;
        let mut overlay = Self {
            began: Instant::now(),
            egui: egui.clone(),
            input: RawInput { focused: false, max_texture_side: Some(largest), ..RawInput::default() },
            painter,
            painting: Painting::default(),
            mode,
            hidden: if mode == OverlayMode::Legend { mode } else { OverlayMode::Off },
            help: false,
            records: false,
            next: Instant::now(),
            figures: Figures::default(),
            frozen: None,
            paused: false,
            tied: Instant::now(),
            notice: None,
            problem: None,
            free: Rect::EVERYTHING,
            cost: 0.0,
            marks: Timestamps::new(queue.device(), FLIGHTS)?,
            marked: [false; FLIGHTS],
            gpu_cost: 0.0,
        };
        let raw = overlay.take_input(vk::Extent2D { width: 1280, height: 720 }, scale);
        let output = overlay.egui.run(raw, look::every_glyph);
        overlay.painter.upload(queue, &output.textures_delta)?;
        Ok(overlay)
    }

    /// Tells the overlay of an event. Returns whether it was for the overlay alone.
    pub(super) fn on_event(&mut self, event: &Event) -> bool {
        match event {
            // Needed even while the overlay is hidden.
            Event::WindowFocused(focused) => self.input.focused = *focused,
            _ if !self.has_something() => return false,
            Event::Key { modifiers, .. }
            | Event::PointerButton { modifiers, .. }
            | Event::MouseWheel { modifiers, .. } => self.input.modifiers = *modifiers,
            _ => {}
        }
        // While nothing is drawn, nobody takes them.
        if self.input.events.len() < MOST_EVENTS {
            self.input.events.push(event.clone());
        }
        self.lay_out_soon();
        match event {
            // The camera hears of all others too: its drag may continue over a panel and end there.
            Event::PointerButton { pressed: true, pos, .. } => self.covers(*pos),
            Event::MouseWheel { .. } | Event::Zoom(_) => self.egui.wants_pointer_input(),
            Event::Key { .. } | Event::Text(_) => self.egui.wants_keyboard_input(),
            _ => false,
        }
    }

    /// egui's own answer is for the pointer of the last layout, and a finger has just come.
    fn covers(&self, at: Pos2) -> bool {
        self.egui.is_using_pointer()
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
        self.next = Instant::now();
        Popup::close_all(&self.egui);
        if !self.is_on() {
            engine.observers.watched = None;
            engine.observers.unpoint(&mut engine.work, &mut engine.drawer)?;
        }
        Ok(())
    }

    pub(super) fn toggle_help(&mut self) {
        self.help = !self.help;
        self.next = Instant::now();
    }

    /// Closes an open list, or else the list of keys. Returns false if neither is open.
    pub(super) fn close_innermost(&mut self) -> bool {
        let has_list = self.is_on() && Popup::is_any_open(&self.egui);
        let is_open = has_list || self.help;
        match has_list {
            true => Popup::close_all(&self.egui),
            false => self.help = false,
        }
        self.next = Instant::now();
        is_open
    }

    pub(super) fn show_recording(&mut self, records: bool) {
        self.records = records;
        self.next = Instant::now();
    }

    pub(super) fn has_notice(&self) -> bool {
        self.mode != OverlayMode::Off && self.notice.is_some()
    }

    pub(super) fn notify(&mut self, words: String) {
        self.notice = Some((words, Instant::now() + NOTICE));
        self.next = Instant::now();
    }

    pub(super) fn show_problem(&mut self, problem: Option<String>) {
        // An older notice may claim success.
        self.notice.take_if(|_| problem.is_some());
        self.problem = problem;
        self.next = Instant::now();
    }

    fn has_something(&self) -> bool {
        self.mode != OverlayMode::Off || self.help || self.records || self.problem.is_some()
    }

    pub(super) fn ignore_gap(&mut self) {
        self.figures.ignore_gap(Instant::now());
    }

    pub(super) fn switched(&mut self, settings: Vec<String>) {
        self.figures.switched(settings);
        self.frozen = None;
    }

    pub(super) fn parts(&self) -> Option<String> {
        self.figures.mean().map(|mean| mean.text())
    }

    pub(super) fn is_due(&self) -> bool {
        self.has_something() && Instant::now() >= self.next
    }

    /// Lays the overlay out. Returns the settings that the user wants, if they differ from the current ones.
    pub(super) fn lay_out(
        &mut self,
        view: &mut OverlayView<'_>,
        parameters: &Parameters,
    ) -> Result<(Option<Draft>, PlatformOutput)> {
        let now = Instant::now();
        self.next = now + EVERY;
        self.notice.take_if(|(_, until)| *until < now);
        if self.is_on() && !view.serves {
            self.watch(view.engine, now)?;
        }
        if self.mode != OverlayMode::Off {
            self.point(view)?;
        }
        let mut draft = Draft {
            config: view.config.clone(),
            parameters: *parameters,
            values: view.engine.work.producer.parameters.to_vec(),
            step: false,
            copy: false,
        };
        let egui = self.egui.clone();
        let raw = self.take_input(view.extent, view.scale);
        let output = egui.run(raw, |egui| {
            self.show(egui, view, &mut draft);
            self.free = egui.available_rect();
        });
        let textures = output.textures_delta;
        if !textures.set.is_empty() || !textures.free.is_empty() {
            // There is an unforeseen glyph, or the screen's scale has changed.
            view.engine.work.drain()?;
            self.painter.upload(view.engine.queue(), &textures)?;
        }
        self.painting = Painting {
            primitives: egui.tessellate(output.shapes, output.pixels_per_point),
            pixels_per_point: output.pixels_per_point,
        };
        self.spend(now.elapsed());
        let changed = draft.step
            || draft.copy
            || draft.config != *view.config
            || draft.parameters != *parameters
            || draft.values[..] != view.engine.work.producer.parameters[..];
        Ok((changed.then_some(draft), output.platform_output))
    }

    fn take_input(&mut self, extent: vk::Extent2D, scale: f32) -> RawInput {
        let viewport = self.input.viewports.entry(ViewportId::ROOT).or_default();
        viewport.native_pixels_per_point = Some(scale);
        let size = vec2(extent.width as f32, extent.height as f32) / (scale * self.egui.zoom_factor());
        RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, size)),
            time: Some(self.began.elapsed().as_secs_f64()),
            ..self.input.take()
        }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.has_something() && !self.painting.primitives.is_empty()
    }

    /// Records the overlay over a picture. The GPU must have finished with the flight. Call [`Overlay::end`]
    /// after all commands that follow the draw.
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
        if let Some(marks) = self.marks.as_ref().filter(|_| flight < FLIGHTS) {
            if std::mem::replace(&mut self.marked[flight], true)
                && let Some([begin, end]) = marks.read(flight)?
            {
                self.gpu_cost += ((end - begin) * 1e-9 - self.gpu_cost) * SMOOTH;
            }
            marks.reset(commands, flight);
            marks.mark(commands, flight, 0);
        }
        // SAFETY: the caller's promise.
        unsafe { self.painter.record(commands, picture, &self.painting) }?;
        self.spend(began.elapsed());
        self.cost *= 1.0 - SMOOTH;
        Ok(())
    }

    pub(super) fn end(&self, commands: vk::CommandBuffer, flight: usize) {
        if let Some(marks) = self.marks.as_ref().filter(|_| flight < FLIGHTS) {
            marks.mark(commands, flight, 1);
        }
    }

    fn spend(&mut self, time: Duration) {
        self.cost += time.as_secs_f64() * SMOOTH;
    }

    fn show(&mut self, egui: &Context, view: &OverlayView<'_>, draft: &mut Draft) {
        let panel = Frame::new().fill(PAPER).inner_margin(10.0);
        let has_room = egui.content_rect().size().min(SMALLEST) == SMALLEST;
        if self.is_on() && view.still {
            // With few rows, it takes only the room that it needs.
            egui::Area::new("left".into()).fixed_pos(Pos2::ZERO).show(egui, |ui| {
                panel.show(ui, |ui| {
                    ui.set_max_width(268.0);
                    self.left(ui, view, draft);
                });
            });
        } else if self.is_on() && has_room {
            SidePanel::left("left").frame(panel).resizable(false).exact_width(288.0).show(egui, |ui| {
                egui::ScrollArea::vertical().show(ui, |ui| self.left(ui, view, draft));
            });
            let lanes = TopBottomPanel::bottom("lanes").frame(panel).resizable(false);
            lanes.show(egui, |ui| self.bottom(ui, view, draft.parameters.paused));
        }
        // Not a panel, so that the pointer there still belongs to the picture.
        let paint = egui.layer_painter(egui::LayerId::background());
        let picture = egui.available_rect();
        if self.mode != OverlayMode::Off {
            if let Some((name, limits)) = view.engine.drawer.legend() {
                graph::legend(&paint, picture, draft.parameters.colormap, name, limits);
            }
            if let (Some(found), Some(at)) =
                (view.engine.observers.under_pointer(), egui.pointer_latest_pos())
            {
                graph::found(&paint, at, &found);
            }
        }
        if self.is_on() && !has_room && !view.still {
            let words = format!("the panel needs {}x{}", SMALLEST.x, SMALLEST.y);
            boxes::caption(
                &paint,
                picture.left_bottom() + vec2(8.0, -8.0),
                Align2::LEFT_BOTTOM,
                &words,
                None,
            );
        }
        if self.records {
            let red = Some(Color32::from_rgb(235, 60, 50));
            let at = picture.right_bottom() - vec2(8.0, 8.0);
            boxes::caption(&paint, at, Align2::RIGHT_BOTTOM, "recording: V ends it", red);
        }
        if let Some(problem) = &self.problem {
            boxes::problem(egui, problem);
        }
        if let Some((words, _)) = self.notice.as_ref().filter(|_| self.mode != OverlayMode::Off) {
            boxes::notice(egui, words);
        }
        if self.help {
            boxes::keys(egui, view.takes);
        }
    }

    fn left(&mut self, ui: &mut Ui, view: &OverlayView<'_>, draft: &mut Draft) {
        let device = &view.engine.device().info().name;
        ui.label(RichText::new("wavefield").size(17.0).strong());
        let what = format!("{} on {device}", view.engine.work.producer.profile().name);
        ui.add(egui::Label::new(RichText::new(what).weak()).truncate());
        ui.add_space(6.0);
        panel::show(ui, view, draft);
        ui.separator();
        if view.serves {
            return;
        }
        let settings = settings(view.config, view.engine);
        if let (Some(before), Some(mean)) = (&self.figures.before, self.figures.mean()) {
            let now = Cost { settings: settings.clone(), mean };
            ui.label(RichText::new(change(before, &now, self.figures.is_settled())).color(ACCENT));
        }
        graph::figures(ui, &self.figures, &settings[0], self.cost);
        ui.label(RichText::new("Tab hides this panel, F1 lists the keys.").weak().small());
    }

    fn bottom(&mut self, ui: &mut Ui, view: &OverlayView<'_>, paused: bool) {
        let in_queue = view.engine.work.producer.profile().in_queue;
        let current = view.engine.observers.watched.as_ref().and_then(lanes::LaneFrames::of);
        // A pause freezes the lanes too.
        if std::mem::replace(&mut self.paused, paused) != paused {
            self.frozen = current.clone().filter(|_| paused);
        }
        let is_frozen = self.frozen.is_some();
        let clicked = match self.frozen.as_ref().or(current.as_ref()) {
            Some(moment) => lanes::show(ui, moment, in_queue, is_frozen),
            None if view.serves => false,
            None => {
                ui.label("no frame times yet, or a device without timestamps");
                false
            }
        };
        if clicked {
            self.frozen = if is_frozen { None } else { current };
        }
        if let Ok(slots) = view.engine.work.slots_now() {
            ui.horizontal(|ui| {
                ui.label("ring");
                lanes::ring(ui, &slots);
            });
        }
    }
}

const SMALLEST: egui::Vec2 = vec2(560.0, 360.0);

const SMOOTH: f64 = 0.02;
