//! The panel for settings that can be changed during the run.

use egui::{ComboBox, Grid as Table, Slider, Ui};
use vulkan_cuda::Ring;
use vulkan_cuda::ring::MAX_DEPTH;

use super::{Draft, View};
use crate::app::{Batching, Config, ProducerKind, Scene};
use crate::cuda::KernelSource;
use crate::gallery;
use crate::handoff::Handoff;
use crate::render::{ColorMap, Samples, Style};
use crate::wave::Grid;

/// The grid sizes to choose from: vertices per side.
const SIDES: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// Shows the panel. The user's changes go to `draft`.
pub(super) fn show(ui: &mut Ui, view: &View<'_>, draft: &mut Draft) {
    Table::new("settings").num_columns(2).spacing([8.0, 5.0]).show(ui, |ui| {
        if !view.serves {
            drawn(ui, view, draft);
        }
        looks(ui, view, draft);
    });
}

/// What is drawn, and how it is filled and handed off.
fn drawn(ui: &mut Ui, view: &View<'_>, draft: &mut Draft) {
    let config = &mut draft.config;
    row(ui, "scene", |ui| {
        // The user's own kernel fits only one scene.
        ui.add_enabled_ui(!config.has_own_kernel(), |ui| {
            let before = config.scene;
            let name = |scene: &Scene| (scene.name().to_owned(), None);
            choose(ui, "scene", &mut config.scene, &[Scene::Field, Scene::Texture], name);
            if config.scene != before {
                (config.kernel, config.parameters) = Default::default();
            }
        });
    });
    if config.scene == Scene::Field {
        row(ui, "kernel", |ui| kernel(ui, config, view.own));
    }
    row(ui, "producer", |ui| {
        let all = [ProducerKind::Auto, ProducerKind::Cuda, ProducerKind::Compute, ProducerKind::Host];
        choose(ui, "producer", &mut config.producer, &all, |&producer| {
            let cuda = producer == ProducerKind::Cuda;
            (producer_name(producer).to_owned(), view.no_cuda.filter(|_| cuda).map(str::to_owned))
        });
    });
    let uses_cuda = config.producer.may_use_cuda() && view.no_cuda.is_none();
    row(ui, "hand-off", |ui| {
        ui.add_enabled_ui(uses_cuda, |ui| {
            let mut chosen = config.handoff;
            choose(ui, "handoff", &mut chosen, &Handoff::ALL, |&handoff| {
                (handoff.name().to_owned(), obstacle(handoff, view, config))
            });
            config.handoff = chosen;
        });
    });
    row(ui, "ring", |ui| {
        let used = view.engine.producer().profile().slots.len() as u32;
        let fixed = uses_cuda && config.handoff.has_one_slot();
        ui.add_enabled_ui(!fixed, |ui| {
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
    });
    row(ui, "batch", |ui| {
        ui.add_enabled_ui(uses_cuda && config.handoff == Handoff::Timeline, |ui| {
            let most = config.ring.map_or(MAX_DEPTH, |ring| ring.depth() as u32);
            let now = view.engine.batch() as u32;
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
    });
    row(ui, "grid", |ui| {
        let square = |side| Grid { cols: side, rows: side };
        let all = SIDES.map(square);
        choose(ui, "grid", &mut config.grid, &all, |grid| (format!("{}x{}", grid.cols, grid.rows), None));
    });
    row(ui, "samples", |ui| {
        let name = |samples: &Samples| (samples.count().to_string(), None);
        choose(ui, "samples", &mut config.samples, &[Samples::One, Samples::Four], name);
    });
}

/// The kernels of the gallery, and the user's own.
fn kernel(ui: &mut Ui, config: &mut Config, own: Option<&KernelSource>) {
    let chosen = kernel_name(config.kernel.as_ref()).to_owned();
    let list = ComboBox::from_id_salt("kernel").selected_text(chosen.as_str()).width(150.0);
    list.show_ui(ui, |ui| {
        for (kernel, about) in kernels(own) {
            let name = kernel_name(kernel.as_ref()).to_owned();
            let is_chosen = name == chosen;
            if ui.selectable_label(is_chosen, name).on_hover_text(about).clicked() && !is_chosen {
                (config.kernel, config.parameters) = (kernel, Default::default());
                config.style = config.usual_style();
            }
        }
    });
}

/// The kernels to choose from, each with a description.
fn kernels(own: Option<&KernelSource>) -> Vec<(Option<KernelSource>, &'static str)> {
    let gallery = gallery::gallery().iter();
    // `None` stands for the wave.
    let gallery = gallery.map(|one| ((one.name != "wave").then(|| one.source()), one.about));
    gallery.chain(own.map(|own| (Some(own.clone()), "your own"))).collect()
}

fn kernel_name(kernel: Option<&KernelSource>) -> &str {
    let own = kernel.map_or("", |kernel| &kernel.name);
    gallery::entry_of(kernel).map_or(own, |entry| entry.name)
}

/// A slider for each of the kernel's own parameters.
fn values(ui: &mut Ui, view: &View<'_>, values: &mut [f32]) {
    let parameters = &view.engine.producer().profile().parameters;
    for (parameter, value) in parameters.iter().zip(values) {
        row(ui, &parameter.name, |ui| {
            ui.add(Slider::new(value, parameter.min..=parameter.max).suffix(unit(&parameter.unit)));
        });
    }
}

/// The suffix for a unit: a single character follows the number directly, a longer unit after a space.
fn unit(unit: &str) -> String {
    if unit.chars().count() > 1 { format!(" {unit}") } else { unit.to_owned() }
}

/// How the field is shown.
fn looks(ui: &mut Ui, view: &View<'_>, draft: &mut Draft) {
    let Draft { config, parameters, .. } = &mut *draft;
    row(ui, "present", |ui| {
        let name = |mode: &crate::vulkan::PresentMode| (mode.name().to_owned(), None);
        choose(ui, "present", &mut config.present, view.modes, name);
    });
    if config.scene == Scene::Field && !view.serves {
        row(ui, "style", |ui| {
            let all = [Style::Surface, Style::Wireframe, Style::Points];
            choose(ui, "style", &mut config.style, &all, |style| (style.name().to_owned(), None));
        });
    }
    row(ui, "colours", |ui| {
        choose(ui, "colours", &mut parameters.colormap, &ColorMap::ALL, |map| (map.name().to_owned(), None));
    });
    values(ui, view, &mut draft.values);
    let parameters = &mut draft.parameters;
    row(ui, "speed", |ui| {
        ui.add(Slider::new(&mut parameters.speed, 0.0..=4.0).suffix("×"));
    });
    row(ui, "", |ui| {
        let words = if parameters.paused { "resume" } else { "pause" };
        if ui.button(words).clicked() {
            parameters.paused = !parameters.paused;
        }
        if ui.add_enabled(parameters.paused, egui::Button::new("step")).clicked() {
            draft.step = true;
        }
        if !view.serves
            && ui.button("copy command").on_hover_ui(|ui| drop(ui.label((view.command)()))).clicked()
        {
            draft.copy = true;
        }
    });
}

fn row(ui: &mut Ui, name: &str, content: impl FnOnce(&mut Ui)) {
    ui.label(name);
    ui.horizontal(content);
    ui.end_row();
}

/// A slider from 1 to `most`. Returns a changed value only when the slider is released: a drag passes many values, and each switch
/// waits for both APIs.
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

/// A list to choose from. `describe` returns a name, and the reason if the entry cannot be chosen.
fn choose<T: Clone + PartialEq>(
    ui: &mut Ui,
    id: &str,
    chosen: &mut T,
    all: &[T],
    describe: impl Fn(&T) -> (String, Option<String>),
) {
    ComboBox::from_id_salt(id).selected_text(describe(chosen).0).width(150.0).height(400.0).show_ui(
        ui,
        |ui| {
            for one in all {
                let (name, obstacle) = describe(one);
                let is_chosen = one == chosen;
                ui.add_enabled_ui(obstacle.is_none(), |ui| {
                    let label = ui.selectable_label(is_chosen, name);
                    if label.clicked() {
                        *chosen = one.clone();
                    }
                    if let Some(obstacle) = obstacle {
                        label.on_disabled_hover_text(obstacle);
                    }
                });
            }
        },
    );
}

/// Why a hand-off cannot be chosen; `None` if it can.
fn obstacle(handoff: Handoff, view: &View<'_>, config: &Config) -> Option<String> {
    let device = view.engine.device();
    if handoff != Handoff::Inline {
        return None;
    }
    if config.has_own_kernel() && !config.risk_the_gpu {
        return Some(crate::app::RISK.to_owned());
    }
    let (_, note) = handoff.on(device.info(), config.scene);
    note.or_else(|| {
        (!device.is_inline())
            .then(|| "this window was opened without inline: start with --handoff inline".to_owned())
    })
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

#[cfg(test)]
mod tests {
    use egui::{
        CentralPanel, Context, Event, Key, Modifiers, PointerButton, Pos2, RawInput, Rect, pos2, vec2,
    };

    use super::*;

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
            let _ = self.egui.clone().run(
                RawInput { events, screen_rect: Some(screen), ..RawInput::default() },
                |egui| {
                    CentralPanel::default().show(egui, |ui| {
                        let area = ui.horizontal(|ui| given = whole(ui, "one", self.value, 9));
                        self.area = area.response.rect;
                    });
                },
            );
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
    fn a_kernel_of_the_users_own_is_in_the_list() {
        let file = KernelSource { name: "mine.cu".into(), gallery: None, ..KernelSource::built_in() };
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
