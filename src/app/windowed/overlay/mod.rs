//! The overlay of the window: frame times, their parts, and the settings.
//!
//! egui lays it out a few times a second, and on input. The frames in between draw the same layout again. Nothing of it runs while
//! it is hidden.

mod figures;
mod graph;
mod holds;
mod lanes;
mod panel;

use std::time::{Duration, Instant};

use ash::vk;
use egui::{
    Align2, Color32, Context, Frame, Pos2, RawInput, Rect, RichText, SidePanel, TopBottomPanel, Ui,
    ViewportId, vec2,
};
use vulkan_cuda::ring::MAX_DEPTH;
use winit::event::{ElementState, WindowEvent};
use winit::window::Window;

use self::figures::{Cost, Figures, change, time};
use self::holds::Holds;
use super::keys;
use crate::Result;
use crate::app::{Config, Engine, Parameters, Scene};
use crate::cuda::KernelSource;
use crate::render::{Painter, Painting, Picture};
use crate::vulkan::{PresentMode, Queue, Timestamps};
use crate::wave::Grid;

/// The most frames in flight: those of the deepest ring, and one that is recorded.
const FLIGHTS: usize = MAX_DEPTH as usize + 1;
/// How often to lay out without input.
const EVERY: Duration = Duration::from_millis(50);
/// How often to tie the clocks of the lanes again.
const TIE_EVERY: Duration = Duration::from_secs(1);
/// How long a notice stays.
const NOTICE: Duration = Duration::from_secs(12);

/// What the overlay reads.
pub(super) struct View<'a> {
    pub(super) engine: &'a mut Engine,
    /// The current settings.
    pub(super) config: &'a Config,
    /// The user's own kernel, if the run began with one.
    pub(super) own: Option<&'a KernelSource>,
    /// The present modes that the window offers.
    pub(super) modes: &'a [PresentMode],
    /// Why CUDA cannot fill the field here; `None` if it can.
    pub(super) no_cuda: Option<&'a str>,
    /// The command line that shows the current picture.
    pub(super) command: &'a dyn Fn() -> String,
    /// The picture's size.
    pub(super) extent: vk::Extent2D,
    /// Whether clients decide what is drawn.
    pub(super) serves: bool,
}

/// The settings that the user wants.
pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) parameters: Parameters,
    /// The values of the kernel's own parameters.
    pub(super) values: Vec<f32>,
    /// Whether to advance by one step while paused.
    pub(super) step: bool,
    /// Whether to copy the command line to the clipboard.
    copy: bool,
}

/// The overlay of a window.
pub(super) struct Overlay {
    began: Instant,
    egui: Context,
    input: egui_winit::State,
    painter: Painter,
    painting: Painting,
    shown: bool,
    help: bool,
    /// When to lay out again, at the latest.
    next: Instant,
    figures: Figures,
    holds: Holds,
    /// What the lanes show while they are frozen.
    frozen: Option<lanes::Moment>,
    /// When the clocks of the lanes were last tied.
    tied: Instant,
    /// A message, and when it disappears.
    notice: Option<(String, Instant)>,
    /// Kept, because on X11 other programs ask this one for the copied text.
    clipboard: Option<arboard::Clipboard>,
    /// A problem that stays until it is fixed. It is shown even while the rest is hidden.
    problem: Option<String>,
    /// The overlay's CPU time per frame, in seconds, smoothed.
    cost: f64,
    /// Start and end of the commands after the draw, on the GPU.
    marks: Option<Timestamps<2>>,
    /// Whether a flight's marks were recorded.
    marked: [bool; FLIGHTS],
    /// The overlay's GPU time per frame, a film's copy included, in seconds, smoothed.
    gpu_cost: f64,
}

impl Overlay {
    /// Makes the overlay and uploads all its glyphs. An upload waits for the queue, so there should be no more of them later.
    pub(super) fn new(window: &Window, queue: &mut Queue, format: vk::Format, shown: bool) -> Result<Self> {
        let egui = Context::default();
        egui.set_visuals(visuals());
        egui.set_fonts(fonts());
        let largest = queue.device().info().largest_picture as usize;
        let scale = window.scale_factor() as f32;
        let input =
            egui_winit::State::new(egui.clone(), ViewportId::ROOT, window, Some(scale), None, Some(largest));
        let painter = Painter::new(queue, format, FLIGHTS)?;
        let mut overlay = Self {
            began: Instant::now(),
            egui,
            input,
            painter,
            painting: Painting::default(),
            shown,
            help: false,
            next: Instant::now(),
            figures: Figures::default(),
            holds: Holds::new(Instant::now()),
            frozen: None,
            tied: Instant::now(),
            notice: None,
            clipboard: None,
            problem: None,
            cost: 0.0,
            marks: Timestamps::new(queue.device(), FLIGHTS)?,
            marked: [false; FLIGHTS],
            gpu_cost: 0.0,
        };
        let raw = overlay.take_input(window, vk::Extent2D { width: 1280, height: 720 });
        let output = overlay.egui.run(raw, every_glyph);
        overlay.painter.upload(queue, &output.textures_delta)?;
        Ok(overlay)
    }

    /// Tells the overlay of an event. True if the event was for the overlay alone.
    pub(super) fn hear(&mut self, window: &Window, event: &WindowEvent) -> bool {
        if !self.has_something() {
            // The overlay needs these even while it is hidden.
            if let WindowEvent::ScaleFactorChanged { .. } | WindowEvent::Focused(_) = event {
                let _ = self.input.on_window_event(window, event);
            }
            return false;
        }
        if let WindowEvent::RedrawRequested = event {
            return false;
        }
        let heard = self.input.on_window_event(window, event);
        if heard.repaint {
            self.next = Instant::now();
        }
        // These are for the camera too: a drag of it may continue over a panel and end there.
        let both = matches!(
            event,
            WindowEvent::CursorMoved { .. } | WindowEvent::MouseInput { state: ElementState::Released, .. }
        );
        heard.consumed && !both
    }

    /// Hides or shows the overlay.
    pub(super) fn toggle(&mut self, engine: &mut Engine) -> Result<()> {
        self.shown = !self.shown;
        self.next = Instant::now();
        if !self.shown {
            engine.unwatch();
            engine.unpoint()?;
        }
        Ok(())
    }

    /// Hides or shows the list of keys.
    pub(super) fn toggle_help(&mut self) {
        self.help = !self.help;
        self.shown |= self.help;
        self.next = Instant::now();
    }

    /// Shows a message for [`NOTICE`].
    pub(super) fn notify(&mut self, words: String) {
        self.notice = Some((words, Instant::now() + NOTICE));
        self.next = Instant::now();
    }

    /// Shows a problem until the next call. `None` shows none.
    pub(super) fn show_problem(&mut self, problem: Option<String>) {
        // An older notice may claim success.
        self.notice.take_if(|_| problem.is_some());
        self.problem = problem;
        self.next = Instant::now();
    }

    /// Whether there is something to lay out.
    fn has_something(&self) -> bool {
        self.shown || self.problem.is_some()
    }

    /// See [`Figures::rest`].
    pub(super) fn rest(&mut self) {
        self.figures.rest();
    }

    /// To be called after a switch from these settings.
    pub(super) fn switched(&mut self, settings: Vec<String>) {
        self.figures.switched(settings);
        self.measure_again();
        self.frozen = None;
    }

    /// How the time of the last frames divides into parts, if the overlay showed that.
    pub(super) fn parts(&self) -> Option<String> {
        self.figures.mean().map(|mean| mean.text())
    }

    /// Whether to lay the overlay out now.
    pub(super) fn is_due(&self) -> bool {
        self.has_something() && Instant::now() >= self.next
    }

    /// Lays the overlay out. Returns the settings that the user wants, if they differ from the current ones.
    pub(super) fn lay_out(
        &mut self,
        window: &Window,
        view: &mut View<'_>,
        parameters: &Parameters,
    ) -> Result<Option<Draft>> {
        let now = Instant::now();
        self.next = now + EVERY;
        // A client's kernel may fault at any time, and only the frame loop can handle that. So do not wait for clients' frames here.
        if self.shown && !view.serves {
            self.watch(view.engine, now)?;
            if !view.engine.is_held() {
                self.point(view)?;
            }
        }
        let mut draft = Draft {
            config: view.config.clone(),
            parameters: *parameters,
            values: view.engine.parameters().to_vec(),
            step: false,
            copy: false,
        };
        let egui = self.egui.clone();
        let raw = self.take_input(window, view.extent);
        let output = egui.run(raw, |egui| self.show(egui, view, &mut draft));
        self.input.handle_platform_output(window, output.platform_output);
        let textures = output.textures_delta;
        if !textures.set.is_empty() || !textures.free.is_empty() {
            // There is an unforeseen glyph, or the screen's scale has changed.
            view.engine.drain()?;
            self.painter.upload(view.engine.queue(), &textures)?;
        }
        self.painting = Painting {
            primitives: egui.tessellate(output.shapes, output.pixels_per_point),
            pixels_per_point: output.pixels_per_point,
        };
        self.spend(now.elapsed());
        let changed = draft.step
            || draft.config != *view.config
            || draft.parameters != *parameters
            || draft.values != view.engine.parameters();
        Ok(changed.then_some(draft))
    }

    /// The input since the last layout. egui-winit would ask the window for its size, but winit panics if the window is gone.
    fn take_input(&mut self, window: &Window, extent: vk::Extent2D) -> RawInput {
        let scale = egui_winit::pixels_per_point(&self.egui, window);
        let size = vec2(extent.width as f32, extent.height as f32) / scale;
        RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, size)),
            time: Some(self.began.elapsed().as_secs_f64()),
            ..self.input.egui_input_mut().take()
        }
    }

    /// Whether there is something to record.
    pub(super) fn is_shown(&self) -> bool {
        self.has_something() && !self.painting.primitives.is_empty()
    }

    /// Records the overlay over a picture. The GPU must have finished with the flight. Call [`Overlay::end`] after all commands that
    /// follow the draw.
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

    /// Marks the end of the commands that follow a frame's draw.
    pub(super) fn end(&self, commands: vk::CommandBuffer, flight: usize) {
        if let Some(marks) = self.marks.as_ref().filter(|_| flight < FLIGHTS) {
            marks.mark(commands, flight, 1);
        }
    }

    fn spend(&mut self, time: Duration) {
        self.cost += time.as_secs_f64() * SMOOTH;
    }

    /// Starts [`Engine::watch`] if it is off, and keeps the clocks tied.
    fn watch(&mut self, engine: &mut Engine, now: Instant) -> Result<()> {
        if engine.watched().is_none() {
            if engine.device().info().timestamp_period.is_some() {
                engine.watch(lanes::WATCHED)?;
                self.figures.renumbered();
            }
            self.tied = now;
        }
        self.collect(engine);
        if now - self.tied > TIE_EVERY {
            engine.tie_again()?;
            self.tied = now;
        }
        Ok(())
    }

    /// Adds the engine's new frames to the figures.
    fn collect(&mut self, engine: &Engine) {
        if let Some(watched) = engine.watched() {
            let in_queue = engine.producer().profile().in_queue;
            self.figures.add(watched.frames(), in_queue, watched.clock(), self.gpu_cost);
        }
    }

    /// Finds the vertex under the pointer, if the pointer is on the picture.
    fn point(&mut self, view: &mut View<'_>) -> Result<()> {
        let has_panels = is_large(self.egui.content_rect().size());
        let on_picture = has_panels && !self.egui.is_pointer_over_area();
        let pointer = self.egui.pointer_latest_pos().filter(|_| on_picture);
        let size = (view.extent.width, view.extent.height);
        let scale = self.egui.pixels_per_point();
        let camera = view.engine.view().camera;
        let ray = pointer.map(|at| camera.ray((at.x * scale, at.y * scale), size));
        if view.engine.point(ray)? {
            self.figures.rest();
            self.measure_again();
        }
        Ok(())
    }

    fn show(&mut self, egui: &Context, view: &View<'_>, draft: &mut Draft) {
        let panel = Frame::new().fill(PAPER).inner_margin(10.0);
        // A small window shows only the picture.
        if self.shown && is_large(egui.content_rect().size()) {
            SidePanel::left("left").frame(panel).resizable(false).exact_width(288.0).show(egui, |ui| {
                egui::ScrollArea::vertical().show(ui, |ui| self.left(ui, view, draft));
            });
            let lanes = TopBottomPanel::bottom("lanes").frame(panel).resizable(false);
            lanes.show(egui, |ui| self.bottom(ui, view));
            // This is not a panel, so that the pointer there still belongs to the picture.
            let left = egui.layer_painter(egui::LayerId::background());
            if let Some((name, limits)) = view.engine.legend() {
                graph::legend(&left, egui.available_rect(), draft.parameters.colormap, name, limits);
            }
            if let (Some(found), Some(at)) = (view.engine.found_vertex(), egui.pointer_latest_pos()) {
                graph::vertex(&left, at, &found);
            }
        }
        if let Some(problem) = &self.problem {
            show_problem(egui, problem);
        }
        if self.shown {
            self.notices(egui);
        }
        if self.shown && self.help {
            egui::Window::new("keys")
                .anchor(Align2::CENTER_CENTER, [0.0, 0.0])
                .collapsible(false)
                .resizable(false)
                .show(egui, |ui| {
                    let keys = egui::Label::new(RichText::new(keys::help()).monospace());
                    ui.add(keys.wrap_mode(egui::TextWrapMode::Extend))
                });
        }
    }

    fn left(&mut self, ui: &mut Ui, view: &View<'_>, draft: &mut Draft) {
        let device = &view.engine.device().info().name;
        ui.label(RichText::new("wavefield").size(17.0).strong());
        let what = format!("{} on {device}", view.engine.producer().profile().name);
        ui.add(egui::Label::new(RichText::new(what).weak()).truncate());
        ui.add_space(6.0);
        panel::show(ui, view, draft);
        if draft.copy {
            self.copy(&(view.command)());
        }
        ui.separator();
        if view.serves {
            return;
        }
        let settings = settings(view.config, view.engine);
        if let (Some(before), Some(mean)) = (self.figures.before(), self.figures.mean())
            && self.figures.is_settled()
        {
            let now = Cost { settings: settings.clone(), mean };
            ui.label(RichText::new(change(before, &now)).color(ACCENT));
        }
        graph::figures(ui, &self.figures, &settings[0]);
        let cost = format!(
            "this overlay takes {} of the CPU and {} of the GPU per frame. Tab hides it, F1 lists the keys.",
            time(self.cost),
            time(self.gpu_cost)
        );
        ui.label(RichText::new(cost).weak().small());
    }

    fn copy(&mut self, text: &str) {
        let mut made = arboard::Clipboard::new();
        let copied = made.as_mut().is_ok_and(|clipboard| clipboard.set_text(text).is_ok());
        let words = match copied {
            true => format!("copied: {text}"),
            // Wayland's clipboard would need eight more crates, and not every compositor allows its use.
            false => "no clipboard (on Linux it must be X11's): the command is on standard error".to_owned(),
        };
        crate::note!("note: {}", if copied { &words } else { text });
        self.notify(words);
        self.clipboard = made.ok();
    }

    fn bottom(&mut self, ui: &mut Ui, view: &View<'_>) {
        let in_queue = view.engine.producer().profile().in_queue;
        let current = view.engine.watched().and_then(lanes::Moment::of);
        let moment = self.frozen.as_ref().or(current.as_ref());
        let clicked = match moment {
            Some(moment) => lanes::show(ui, moment, in_queue, self.frozen.is_some()),
            None => {
                ui.label("no frame times yet, or a device without timestamps");
                false
            }
        };
        if clicked {
            self.frozen = if self.frozen.is_some() { None } else { current };
        }
        if let Ok(slots) = view.engine.slots_now() {
            ui.horizontal(|ui| {
                ui.label("ring");
                lanes::ring(ui, &slots);
            });
        }
    }

    fn notices(&mut self, egui: &Context) {
        if self.notice.as_ref().is_some_and(|(_, until)| *until < Instant::now()) {
            self.notice = None;
        }
        let Some((words, _)) = &self.notice else { return };
        let area = egui::Area::new("notice".into()).anchor(Align2::CENTER_TOP, [0.0, 14.0]);
        area.show(egui, |ui| {
            Frame::new().fill(PAPER).inner_margin(10.0).corner_radius(4.0).show(ui, |ui| {
                ui.set_max_width(620.0);
                ui.label(RichText::new(words).color(ACCENT));
            });
        });
    }
}

/// Shows a kernel's problem in full, at the bottom of the picture. Notices are at its top.
fn show_problem(egui: &Context, problem: &str) {
    let (picture, all) = (egui.available_rect(), egui.content_rect());
    let offset = picture.center_bottom() - all.center_bottom() - vec2(0.0, 14.0);
    egui::Window::new("not reloaded: the last good kernel keeps running")
        .anchor(Align2::CENTER_BOTTOM, offset)
        .default_width((picture.width() - 40.0).min(800.0))
        .collapsible(false)
        .resizable(false)
        .show(egui, |ui| {
            let text = egui::ScrollArea::vertical().max_height(picture.height() * 0.35);
            text.show(ui, |ui| ui.label(RichText::new(problem).monospace().color(ACCENT)));
        });
}

/// The smallest window with panels, in points.
const SMALLEST: egui::Vec2 = vec2(560.0, 360.0);
/// Whether a window has room for panels.
fn is_large(size: egui::Vec2) -> bool {
    size.x >= SMALLEST.x && size.y >= SMALLEST.y
}

/// The weight of a frame's cost in the running average.
const SMOOTH: f64 = 0.02;
/// The colours of a frame's parts.
const KERNEL: Color32 = Color32::from_rgb(228, 87, 46);
const DRAW: Color32 = Color32::from_rgb(76, 120, 168);
const NEITHER: Color32 = Color32::from_rgb(196, 160, 60);
const PAPER: Color32 = Color32::from_rgba_premultiplied(16, 18, 22, 225);
const ACCENT: Color32 = Color32::from_rgb(255, 196, 87);

fn visuals() -> egui::Visuals {
    let opaque = Color32::from_rgb(22, 24, 29);
    egui::Visuals { panel_fill: PAPER, window_fill: opaque, ..egui::Visuals::dark() }
}

/// The default fonts. The code font supplies glyphs that the first font lacks, such as an arrow.
fn fonts() -> egui::FontDefinitions {
    let mut fonts = egui::FontDefinitions::default();
    let code = fonts.families.get(&egui::FontFamily::Monospace).and_then(|fonts| fonts.first().cloned());
    fonts.families.entry(egui::FontFamily::Proportional).or_default().extend(code);
    fonts
}

/// Shows every glyph that the overlay uses, in every size.
fn every_glyph(egui: &Context) {
    let text: String = (' '..='~').chain("×µ→…’°²·–±".chars()).collect();
    egui::Area::new("glyphs".into()).show(egui, |ui| {
        for size in [9.0, 11.0, 12.0, 12.5, 14.0, 17.0, 18.0] {
            ui.label(RichText::new(&text).size(size));
        }
        ui.label(RichText::new(&text).monospace());
        ui.label(RichText::new(&text).small());
    });
}

/// The settings that a frame's time depends on, with the hand-off first.
pub(super) fn settings(config: &Config, engine: &Engine) -> Vec<String> {
    let profile = engine.producer().profile();
    let (handoff, _) = config.handoff.on(engine.device().info(), config.scene);
    let mut name = if profile.uses_cuda { handoff.name() } else { profile.name }.to_owned();
    if profile.slots.len() > 1 {
        name += &format!(" ring {}", profile.slots.len());
    }
    let batch = engine.batch();
    if batch > 1 {
        name += &format!(" batch {batch}");
    }
    let kernel = match (&config.kernel, config.scene) {
        (None, Scene::Texture) => "texture",
        (None, Scene::Field) => "wave",
        (Some(kernel), _) => kernel.gallery.unwrap_or(&kernel.name),
    };
    let Grid { cols, rows } = config.grid;
    let samples = format!("{} samples", config.samples.count());
    let shown = [format!("{cols}x{rows}"), samples, config.style.name().into(), config.present.name().into()];
    [name, kernel.to_owned()].into_iter().chain(shown).collect()
}
