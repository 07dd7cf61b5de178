use clap::ValueEnum;
use egui::{Button, ComboBox, Context, DragValue, Grid as Table, Id, Slider, Ui};
use vulkan_cuda::Ring;
use vulkan_cuda::ring::MAX_DEPTH;

use super::{Draft, OverlayView};
use wavefield_draw::{Camera, ColorMap, FieldView, Look, Norm, Samples, Style};
use wavefield_gpu::cuda::{KernelSource, KernelValues};
use wavefield_gpu::report::word;
use wavefield_gpu::vulkan::PresentMode;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::{array::ArrayKind, gallery, parts::PartName, wave::Grid};
use wavefield_run::{Batching, Config, Engine, ProducerKind, Scene};

/// The sides of the selectable grids, in vertices or texels.
const SIDES: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

const MEANINGS: [(&str, &str); 17] = [
    ("scene", "What is drawn: a field of vertices, or a plane with a texture."),
    ("kernel", "What computes the field."),
    ("producer", "What runs the kernel: CUDA, a Vulkan compute shader, or the CPU."),
    ("hand-off", "How a frame gets from CUDA to Vulkan. The guide measures each."),
    ("ring", "Slots for frames. While Vulkan draws one, CUDA fills the next. More slots delay the picture."),
    (
        "batch",
        "Frames that CUDA fills at once. Longer batches switch less between the APIs, and delay the picture.",
    ),
    ("grid", "Vertices of the field, or texels of the texture."),
    ("samples", "Samples per pixel: 4 for smooth edges, 1 for speed."),
    (
        "present",
        "fifo waits for the display; mailbox shows the newest frame; immediate waits for nothing, and may tear.",
    ),
    ("style", "How the vertices are drawn."),
    ("colours", "The colour map."),
    ("limits", "The values at the two ends of the colour map."),
    ("size", "The diameter of points, or the width of lines, in pixels."),
    ("norm", "How values between the limits are spread over the colours: evenly, or by their logarithm."),
    ("invert", "Turns the colour map around."),
    ("axes", "Axes with the array's numbers."),
    ("speed", "Seconds of the field per second."),
];

pub(super) fn show(ui: &mut Ui, view: &OverlayView<'_>, draft: &mut Draft) {
    Table::new("settings").num_columns(2).spacing([8.0, 5.0]).show(ui, |ui| {
        if !view.serves {
            drawn(ui, view, draft);
        }
        looks(ui, view, draft);
    });
}

fn drawn(ui: &mut Ui, view: &OverlayView<'_>, draft: &mut Draft) {
    let config = &mut draft.config;
    let now = config.clone();
    let refusal = |config: Config| refusal(&config, view);
    let own = now.has_own_kernel().then(|| "your own kernel fits only this scene".to_owned());
    let egui = ui.ctx().clone();
    let name = |&scene: &Scene| (word(scene), refusal(in_scene(&egui, &now, scene)));
    if list(ui, "scene", own, &mut config.scene, &[Scene::Field, Scene::Texture], &[], name) {
        leave_scene(&egui, &now);
        *config = in_scene(&egui, &now, config.scene);
    }
    if config.scene == Scene::Field {
        let (all, abouts): (Vec<_>, Vec<_>) = kernels(view.own).into_iter().unzip();
        let with = |kernel: &Option<KernelSource>| Config {
            kernel: kernel.clone(),
            parameters: Default::default(),
            ..now.clone()
        };
        let name =
            |kernel: &Option<KernelSource>| (kernel_name(kernel.as_ref()).to_owned(), refusal(with(kernel)));
        if list(ui, "kernel", None, &mut config.kernel, &all, &abouts, name) {
            *config = with(&config.kernel);
            config.style = config.usual_style();
        }
    }
    let all = [ProducerKind::Auto, ProducerKind::Cuda, ProducerKind::Compute, ProducerKind::Host];
    let name = |&producer: &ProducerKind| {
        let no_cuda = view.no_cuda().filter(|_| producer == ProducerKind::Cuda).map(str::to_owned);
        let refusal = || refusal(Config { producer, ..now.clone() });
        (producer_name(producer).to_owned(), no_cuda.or_else(refusal))
    };
    list(ui, "producer", None, &mut config.producer, &all, &[], name);
    let no_cuda = match config.producer.may_use_cuda() {
        true => view.no_cuda().map(str::to_owned),
        false => Some(format!("no hand-off: {} fills the field", producer_name(config.producer))),
    };
    let name = |&handoff: &Handoff| (handoff.name().to_owned(), refusal(Config { handoff, ..now.clone() }));
    list(ui, "hand-off", no_cuda.clone(), &mut config.handoff, &Handoff::ALL, &[], name);
    let fixed = no_cuda.is_none() && config.handoff.has_one_slot();
    row(ui, "ring", fixed.then(|| format!("{} has one slot", config.handoff.name())), |ui| {
        let used = view.engine.work.producer.profile().slots.len() as u32;
        let depth = config.ring.map_or(used, |ring| ring.depth() as u32);
        if let Some(depth) = whole(ui, "ring", depth, MAX_DEPTH) {
            config.ring = Ring::new(depth);
            if let Batching::Fixed(frames) = config.batch {
                config.batch = Batching::Fixed(frames.min(depth));
            }
        }
        let mut auto = config.ring.is_none();
        if ui.checkbox(&mut auto, "auto").changed() {
            config.ring = if auto { None } else { Ring::new(used) };
        }
    });
    let other = (config.handoff != Handoff::Timeline).then(|| "only timeline fills batches".to_owned());
    row(ui, "batch", no_cuda.or(other), |ui| {
        let most = config.ring.map_or(MAX_DEPTH, |ring| ring.depth() as u32);
        let now = view.engine.work.producer.batch() as u32;
        let frames = match config.batch {
            Batching::Fixed(frames) => frames,
            Batching::Auto { .. } => now.min(most),
        };
        if let Some(frames) = whole(ui, "batch", frames, most) {
            config.batch = Batching::Fixed(frames);
        }
        let mut auto = matches!(config.batch, Batching::Auto { .. });
        if ui.checkbox(&mut auto, "auto").changed() {
            config.batch = if auto { Batching::default() } else { Batching::Fixed(frames) };
        }
    });
    let all = SIDES.map(|side| Grid { cols: side, rows: side });
    let name = |&grid: &Grid| (grid.to_string(), refusal(Config { grid, ..now.clone() }));
    list(ui, "grid", None, &mut config.grid, &all, &[], name);
    let name = |samples: &Samples| (samples.count().to_string(), None);
    list(ui, "samples", None, &mut config.samples, &[Samples::One, Samples::Four], &[], name);
}

type KeptKernel = (Option<KernelSource>, KernelValues);

fn kept_for(scene: Scene) -> Id {
    Id::new(("the kernel of a scene", scene))
}

/// Saves the kernel and its parameters until the user selects this scene again.
fn leave_scene(egui: &Context, config: &Config) {
    let kept: KeptKernel = (config.kernel.clone(), config.parameters);
    egui.data_mut(|data| data.insert_temp(kept_for(config.scene), kept));
}

fn in_scene(egui: &Context, config: &Config, scene: Scene) -> Config {
    let (kernel, parameters) =
        egui.data(|data| data.get_temp::<KeptKernel>(kept_for(scene))).unwrap_or_default();
    Config { scene, kernel, parameters, ..config.clone() }
}

fn kernels(own: Option<&KernelSource>) -> Vec<(Option<KernelSource>, &'static str)> {
    let gallery = gallery::GALLERY.iter();
    // `None` stands for the wave.
    let gallery = gallery.map(|one| ((one.name != "wave").then(|| one.source()), one.about));
    gallery.chain(own.map(|own| (Some(own.clone()), "your own"))).collect()
}

fn kernel_name(kernel: Option<&KernelSource>) -> &str {
    let own = kernel.map_or("", |kernel| &kernel.name);
    gallery::entry_of(kernel).map_or(own, |entry| entry.name)
}

/// Returns a unit as a suffix. A single character follows the number directly, a longer unit after a space.
fn unit(unit: &str) -> String {
    if unit.chars().count() > 1 { format!(" {unit}") } else { unit.to_owned() }
}

fn looks(ui: &mut Ui, view: &OverlayView<'_>, draft: &mut Draft) {
    let Draft { config, parameters, .. } = &mut *draft;
    let name = |&mode: &PresentMode| (word(mode), None);
    list(ui, "present", None, &mut config.present, view.screen.modes(), &[], name);
    if config.scene == Scene::Field && !view.serves {
        let all = [Style::Surface, Style::Wireframe, Style::Points];
        list(ui, "style", None, &mut config.style, &all, &[], |&style| (word(style), None));
    }
    let has_colors = !view.serves || view.engine.drawer.has_colors();
    let obstacle = (!has_colors).then(|| "the image has colours of its own".to_owned());
    let name = |&map: &ColorMap| (map.name(), None);
    let all: Vec<_> = ColorMap::value_variants().iter().copied().chain(parameters.own).collect();
    list(ui, "colours", obstacle, &mut parameters.colormap, &all, &[], name);
    if view.serves {
        array_settings(ui, view, &mut draft.view);
    }
    for (parameter, value) in view.engine.work.producer.profile().parameters.iter().zip(&mut draft.values) {
        row(ui, &parameter.name, None, |ui| {
            ui.add(Slider::new(value, parameter.min..=parameter.max).suffix(unit(&parameter.unit)));
        });
    }
    if view.still {
        return;
    }
    let parameters = &mut draft.parameters;
    row(ui, "speed", None, |ui| {
        ui.add(Slider::new(&mut parameters.speed, 0.0..=4.0).suffix("x"));
    });
    row(ui, "", None, |ui| {
        let words = if parameters.paused { "resume" } else { "pause" };
        if ui.button(words).on_hover_text("Stops the field and the lanes, or lets them go on.").clicked() {
            parameters.paused = !parameters.paused;
        }
        let step = ui.add_enabled(parameters.paused, egui::Button::new("step"));
        if step.on_hover_text("One step of the field.").on_disabled_hover_text("pause first").clicked() {
            draft.step = true;
        }
        let camera = view.engine.drawer.view.camera;
        let command =
            || shown(view.config, parameters.speed, camera).command_line(false) + &view.screen.option();
        if !view.serves && ui.button("copy command").on_hover_ui(|ui| drop(ui.label(command()))).clicked() {
            draft.copy = Some(command());
        }
    });
}

/// Shows the settings of a client's array, in the client's units.
fn array_settings(ui: &mut Ui, view: &OverlayView<'_>, shown: &mut FieldView) {
    let [offset, factor] = shown.units;
    // Several arrays have several limits and norms, and there is room for one.
    let is_one = !view.engine.drawer.renderer.drawing().has_others();
    let has_colors = view.engine.drawer.has_colors();
    if is_one && (has_colors || view.engine.drawer.array().is_plot()) {
        row(ui, "limits", None, |ui| {
            let [low, high] = shown.limits.map(f64::from);
            let speed = 0.005 * ((high - low) * factor).abs();
            let limits = [low, high].map(|limit| {
                let mut limit = offset + factor * limit;
                ui.add(DragValue::new(&mut limit).speed(speed).max_decimals(12));
                ((limit - offset) / factor) as f32
            });
            // The shaders use one over the difference.
            let difference = limits[1] - limits[0];
            let suits = difference.is_normal() && difference.recip().is_normal();
            if limits != shown.limits && suits && shown.look.check(limits).is_ok() {
                shown.limits = limits;
            }
        });
    }
    let array = view.engine.drawer.array();
    let has_size = array.kind() == ArrayKind::Lines
        || (array.kind() == ArrayKind::Points && array.part(PartName::Sizes).is_none());
    if has_size {
        row(ui, "size", None, |ui| drop(ui.add(Slider::new(&mut shown.size, 1.0..=64.0).suffix(" px"))));
    }
    if is_one && has_colors {
        let (look, limits) = (shown.look, shown.limits);
        let name = |&norm: &Norm| (word(norm), Look { norm, ..look }.check(limits).err());
        list(ui, "norm", None, &mut shown.look.norm, Norm::value_variants(), &[], name);
        row(ui, "invert", None, |ui| drop(ui.checkbox(&mut shown.look.invert, "")));
    }
    row(ui, "axes", None, |ui| drop(ui.checkbox(&mut shown.look.axes, "")));
}

/// Adds a row. An `obstacle` disables the row, and is shown as its tooltip.
fn row(ui: &mut Ui, name: &str, obstacle: Option<String>, content: impl FnOnce(&mut Ui)) {
    let meaning = MEANINGS.iter().find(|(one, _)| *one == name);
    let meaning =
        meaning.map_or("A parameter of the kernel: its source says what it does.", |(_, meaning)| meaning);
    let label = ui.label(name);
    if !name.is_empty() {
        label.on_hover_text(meaning);
    }
    let shown = ui.add_enabled_ui(obstacle.is_none(), |ui| ui.horizontal(content));
    shown.response.on_disabled_hover_text(obstacle.unwrap_or_default());
    ui.end_row();
}

/// Shows a slider. Returns a value only on release, because each change waits for both APIs.
fn whole(ui: &mut Ui, id: &str, value: u32, most: u32) -> Option<u32> {
    let id = ui.id().with(id);
    let mut wanted = ui.data(|data| data.get_temp(id)).unwrap_or(value);
    let slider = Slider::new(&mut wanted, 1..=most).update_while_editing(false);
    if ui.add(slider).dragged() {
        ui.data_mut(|data| data.insert_temp(id, wanted));
        return None;
    }
    ui.data_mut(|data| data.remove::<u32>(id));
    (wanted != value).then_some(wanted)
}

/// Shows a list to choose from. `describe` returns an entry's name and, if it cannot be chosen, the reason.
/// `abouts` describes the entries; it may be empty. Returns whether the user chose a different entry.
fn list<T: Clone + PartialEq>(
    ui: &mut Ui,
    name: &str,
    obstacle: Option<String>,
    chosen: &mut T,
    all: &[T],
    abouts: &[&str],
    describe: impl Fn(&T) -> (String, Option<String>),
) -> bool {
    let list = ComboBox::from_id_salt(name).selected_text(describe(chosen).0).width(150.0).height(400.0);
    let mut wanted = chosen.clone();
    let entries = |ui: &mut Ui| {
        for (index, one) in all.iter().enumerate() {
            let (name, obstacle) = describe(one);
            let enabled = one == chosen || obstacle.is_none();
            let label = ui.add_enabled(enabled, Button::selectable(one == chosen, name));
            if label.clicked() {
                wanted = one.clone();
            }
            let label = label.on_disabled_hover_text(obstacle.unwrap_or_default());
            if let Some(about) = abouts.get(index) {
                label.on_hover_text(*about);
            }
        }
    };
    row(ui, name, obstacle, |ui| drop(list.show_ui(ui, entries)));
    let is_other = wanted != *chosen;
    *chosen = wanted;
    is_other
}

/// Returns why these settings cannot be chosen; `None` if they can.
fn refusal(config: &Config, view: &OverlayView<'_>) -> Option<String> {
    let device = view.engine.device();
    if config.handoff == Handoff::Inline && config.producer.may_use_cuda() && view.no_cuda().is_none() {
        if config.has_own_kernel() && !config.risk_the_gpu {
            return Some(wavefield_run::RISK.to_owned());
        }
        let (_, note) = config.handoff.on(device.info());
        if note.is_some() {
            return note;
        }
    }
    config.check_on(view.choice, device).err().map(|error| error.to_string())
}

fn producer_name(producer: ProducerKind) -> &'static str {
    match producer {
        ProducerKind::Auto => "auto",
        ProducerKind::Cuda => "cuda",
        ProducerKind::Compute => "compute shader",
        ProducerKind::Host => "CPU threads",
        ProducerKind::Still | ProducerKind::StillShared => "nothing",
    }
}

/// Returns settings whose command line reproduces the picture.
pub(crate) fn shown(config: &Config, speed: f64, camera: Camera) -> Config {
    let camera = Some(camera.rounded()).filter(|camera| *camera != Camera::of(config.scene).rounded());
    Config { camera, speed, ..config.clone() }
}

/// Lists the settings that a frame's time depends on, with the hand-off first.
pub(crate) fn settings(config: &Config, engine: &Engine) -> Vec<String> {
    let profile = engine.work.producer.profile();
    let (handoff, _) = config.handoff.on(engine.device().info());
    let mut name = if profile.uses_cuda { handoff.name() } else { profile.name }.to_owned();
    if profile.slots.len() > 1 {
        name += &format!(" ring {}", profile.slots.len());
    }
    let batch = engine.work.producer.batch();
    if batch > 1 {
        name += &format!(" batch {batch}");
    }
    let kernel = match (&config.kernel, config.scene) {
        (None, Scene::Texture) => "texture",
        (None, Scene::Field) => "wave",
        (Some(kernel), _) => kernel.built_in.unwrap_or(&kernel.name),
    };
    let samples = format!("{} samples", config.samples.count());
    vec![name, kernel.to_owned(), config.grid.to_string(), samples, word(config.style), word(config.present)]
}

#[cfg(test)]
mod tests {
    use egui::{CentralPanel, Event, Key, Modifiers, PointerButton, Pos2, RawInput, Rect, pos2, vec2};

    use super::*;
    use wavefield_gpu::vulkan::Validation;

    /// A slider from 1 to 9 that starts at 3.
    struct Sliding {
        egui: Context,
        value: u32,
        /// Where the slider is.
        area: Rect,
    }

    impl Sliding {
        fn new() -> Self {
            let mut sliding = Self { egui: Context::default(), value: 3, area: Rect::NOTHING };
            // egui knows what is under the pointer from the last frame.
            assert_eq!((sliding.hears(vec![]), sliding.hears(vec![])), (None, None));
            sliding
        }

        /// Sends events to the slider. A returned value becomes its new value.
        fn hears(&mut self, events: Vec<Event>) -> Option<u32> {
            let screen = Rect::from_min_size(Pos2::ZERO, vec2(400.0, 100.0));
            let mut given = None;
            let output = self.egui.clone().run_ui(
                RawInput { events, screen_rect: Some(screen), ..RawInput::default() },
                |ui| {
                    CentralPanel::default().show(ui, |ui| {
                        let area = ui.horizontal(|ui| given = whole(ui, "one", self.value, 9));
                        self.area = area.response.rect;
                    });
                },
            );
            output.drop_without_applying_deltas();
            self.value = given.unwrap_or(self.value);
            given
        }

        /// A place this far to the right of the rail's left end.
        fn at(&self, right: f32) -> Pos2 {
            pos2(self.area.left() + right, self.area.center().y)
        }

        fn button(&self, right: f32, pressed: bool) -> Event {
            let (pos, modifiers) = (self.at(right), Modifiers::NONE);
            Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers }
        }
    }

    #[test]
    fn the_copied_command_has_a_camera_that_a_person_can_read() {
        let config = Config { validation: Validation::IfInstalled, ..Config::default() };
        let command = |camera| shown(&config, config.speed, camera).command_line(false);
        let mut camera = config.camera();
        assert_eq!(command(camera), "wavefield");
        camera.orbit(37.3, 11.7);
        camera.zoom(1.7);
        assert_eq!(command(camera), "wavefield --camera=0.3562,0.5902,2.7588,0,-0.2,0");
    }

    /// Otherwise the swarm becomes a wave that is drawn as points.
    #[test]
    fn a_scene_that_comes_back_has_its_kernel() {
        let egui = Context::default();
        let swarm = gallery::named("swarm").unwrap().map(gallery::GalleryEntry::source);
        let swarm = Config { kernel: swarm, style: Style::Points, ..Config::default() };
        let parameters = swarm.kernel().parameters().unwrap().values(&[0.5, 0.1]);
        let swarm = Config { parameters, ..swarm };
        leave_scene(&egui, &swarm);
        let texture = in_scene(&egui, &swarm, Scene::Texture);
        assert_eq!((texture.scene, &texture.kernel), (Scene::Texture, &None));
        leave_scene(&egui, &texture);
        assert_eq!(in_scene(&egui, &texture, Scene::Field), swarm);
    }

    /// Two rows with the same name would mean different things.
    #[test]
    fn no_parameter_of_the_gallery_is_named_like_a_row() {
        for entry in &gallery::GALLERY {
            for parameter in entry.source().parameters().unwrap().iter() {
                assert!(
                    MEANINGS.iter().all(|(row, _)| *row != parameter.name),
                    "{}: {}",
                    entry.name,
                    parameter.name
                );
            }
        }
    }

    #[test]
    fn a_kernel_of_the_users_own_is_in_the_list() {
        let file = KernelSource {
            name: "mine.cu".into(),
            built_in: None,
            ..wavefield_handoff::contents::built_in::wave()
        };
        let names = |own| -> Vec<String> {
            kernels(own).iter().map(|(kernel, _)| kernel_name(kernel.as_ref()).to_owned()).collect()
        };
        assert_eq!(names(None), ["wave", "ripples", "ocean", "pond", "swarm"]);
        assert_eq!(names(Some(&file)), ["wave", "ripples", "ocean", "pond", "swarm", "mine.cu"]);
        assert_eq!(kernels(Some(&file))[5].0.as_ref(), Some(&file));
        assert_eq!(kernels(None)[0].0, None);
    }

    #[test]
    fn a_drag_gives_one_value_at_its_end() {
        let mut sliding = Sliding::new();
        let begin = vec![Event::PointerMoved(sliding.at(30.0)), sliding.button(30.0, true)];
        assert_eq!(sliding.hears(begin), None);
        for right in [45.0, 60.0, 75.0, 92.0] {
            let to = vec![Event::PointerMoved(sliding.at(right))];
            assert_eq!(sliding.hears(to), None, "still held");
        }
        let end = vec![sliding.button(92.0, false)];
        assert_eq!(sliding.hears(end), Some(9));
        assert_eq!(sliding.hears(vec![]), None);
    }

    #[test]
    fn a_click_and_a_key_count_at_once() {
        let mut sliding = Sliding::new();
        let at = sliding.at(92.0);
        let click = vec![Event::PointerMoved(at), sliding.button(92.0, true)];
        assert_eq!((sliding.hears(click), sliding.value), (None, 3));
        let release = vec![sliding.button(92.0, false)];
        assert_eq!(sliding.hears(release), Some(9));
        let key = |key| {
            let (physical_key, pressed, repeat, modifiers) = (None, true, false, Modifiers::NONE);
            vec![Event::Key { key, physical_key, pressed, repeat, modifiers }]
        };
        let mut sliding = Sliding::new();
        // The focus moves one frame after the key.
        assert_eq!((sliding.hears(key(Key::Tab)), sliding.hears(vec![])), (None, None));
        assert_eq!(sliding.hears(key(Key::ArrowRight)), Some(4));
    }
}
