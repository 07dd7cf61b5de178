//! The options of a run, which several commands share, and the [`Config`] that they make.

use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, Id, ValueEnum};
use wavefield::app::parse::Frames;
use wavefield::app::{Batching, Config, ProducerKind, RISK, Scene};
use wavefield::cuda::KernelSource;
use wavefield::gallery;
use wavefield::handoff::Handoff;
use wavefield::vulkan::Validation;
use wavefield::{Error, Result};

use super::{help, parse};

// The settings of a run, and the options that other commands take in another way or that need a look at several of them.
#[derive(Args)]
pub struct RunArgs {
    // The first: the others take their values out of clap's matches.
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    pub config: Config,
    /// Run a kernel other than the wave: ripples, ocean, pond or swarm, or a file of your own (its signature is in
    /// crates/wavefield/kernels/README.md). A .ptx file is loaded; a .cu file is compiled by NVRTC first. If the file has several
    /// entries, add :ENTRY. A plain run in a window reloads the file whenever it is saved.
    #[arg(long, value_name = "NAME|FILE[:ENTRY]", value_parser = parse::name, help_heading = help::WHAT)]
    pub kernel: Option<String>,
    /// Set a parameter of the kernel; may be repeated. The wave has amplitude and frequency. A kernel of
    /// your own declares its parameters in lines of //!PARAM (crates/wavefield/kernels/README.md).
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::parameter, help_heading = help::WHAT)]
    param: Vec<(String, f32)>,
    #[command(flatten)]
    consent: Consent,
    /// Slots that CUDA fills for each wait, with --handoff timeline. A larger batch makes the hand-off
    /// cheaper and adds latency. auto chooses the smallest batch whose hand-off takes at most a twentieth
    /// of a frame, and adapts it during the run [default: auto; serve: 1].
    #[arg(long, value_name = "auto|1..=RING", value_parser = parse::frames, allow_hyphen_values = true, help_heading = help::HOW)]
    batch: Option<Frames>,
    /// With --batch auto: the longest time in milliseconds that the batch may delay a frame [default: 33].
    #[arg(long, value_name = "MS", value_parser = parse::milliseconds, allow_hyphen_values = true, help_heading = help::HOW)]
    batch_latency: Option<Duration>,
    /// Draw without a window.
    #[arg(long, help_heading = help::HOW)]
    pub headless: bool,
    /// Use the Khronos validation layer with synchronization validation: any error ends the run with exit
    /// code 1 [default: on in debug builds if it is installed, otherwise off].
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = help::DIAGNOSIS)]
    validation: Option<OnOff>,
}

/// The options that the command line names, whatever their values.
#[derive(Default)]
struct Given(Vec<String>);

impl Given {
    fn has(&self, option: &str) -> bool {
        self.0.iter().any(|given| given == option)
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches).map(|()| given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        let names = matches.ids().map(Id::as_str);
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        self.0 = given.map(str::to_owned).collect();
        Ok(())
    }
}

#[derive(Args)]
pub struct Consent {
    /// Let --handoff inline run a kernel of your own, or one that a client of `serve` sends. If it faults
    /// inside Vulkan's command buffer, no process can draw on this GPU any more. Without this option such
    /// a kernel is refused.
    #[arg(long, help_heading = help::HOW)]
    pub risk_the_gpu: bool,
}

impl Consent {
    /// Refuses to put a kernel of the user's own into Vulkan's command buffer without consent.
    pub fn check(&self, kernel: Option<&str>, inline: bool) -> Result<()> {
        match kernel {
            Some(kernel) if inline && !self.risk_the_gpu && gallery::named(kernel)?.is_none() => {
                Err(Error::Usage(format!("--kernel {kernel} does not run inline: {RISK}")))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the kernel of `--kernel`. Fails if it cannot fill the scene.
pub fn read_kernel(argument: Option<&str>, scene: Scene) -> Result<Option<KernelSource>> {
    let Some(argument) = argument else { return Ok(None) };
    if let Some(entry) = gallery::named(argument)? {
        return match scene {
            Scene::Field => Ok(Some(entry.source())),
            Scene::Texture => Err(Error::Usage(format!(
                "--kernel {argument} fills a field, and --scene texture has none: leave one of them out"
            ))),
        };
    }
    let kernel = KernelSource::from_argument(argument)?;
    kernel.check_signature(scene.signature())?;
    Ok(Some(kernel))
}

/// Sets the parameters of `--param`. It is wrong usage if the kernel does not have one of them.
pub fn set_parameters(config: &mut Config, given: &[(String, f32)]) -> Result<()> {
    let kernel = config.kernel();
    let given = given.iter().map(|(name, value)| (name.as_str(), *value));
    let chosen = kernel.parameters()?.choose(&kernel.name, &[], given);
    config.parameters = chosen.map_err(|problem| Error::Usage(format!("--param: {problem}")))?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

impl RunArgs {
    /// Refuses options that would have no effect together with another option, without a window, or with one.
    fn check(&self, headless: bool) -> Result<()> {
        let Self { given, config, .. } = self;
        for option in ["present", "overlay"] {
            if headless && given.has(option) {
                return Err(Error::Usage(format!(
                    "--{option} is for a window, and this run has none: leave it out"
                )));
            }
        }
        if !headless && config.output.is_some() {
            return Err(Error::Usage(
                "--output writes the last frame of a run without a window: add --headless".into(),
            ));
        }
        let gif = config.record.as_ref().is_some_and(|path| path.as_os_str() != "-");
        if given.has("record_side") && !gif {
            return Err(Error::Usage("--record-side is for --record FILE.gif".into()));
        }
        if config.scene == Scene::Texture && given.has("style") {
            return Err(Error::Usage(format!(
                "--style {} is for the field: the plane of --scene texture is always drawn in the same way",
                config.style.name()
            )));
        }
        let producer = match config.producer {
            ProducerKind::Auto | ProducerKind::Cuda => None,
            other => other.to_possible_value(),
        };
        if let Some(producer) = producer {
            let entry = self.kernel.as_deref().map(gallery::named).transpose()?.flatten();
            let has_shader =
                config.producer == ProducerKind::Compute && entry.is_some_and(|entry| entry.twin.is_some());
            let for_cuda = [
                (self.kernel.is_some() && !has_shader, "--kernel"),
                (given.has("handoff"), "--handoff"),
                (self.batch.is_some(), "--batch"),
                (self.batch_latency.is_some(), "--batch-latency"),
            ];
            if let Some((_, option)) = for_cuda.iter().find(|(given, _)| *given) {
                let producer = producer.get_name();
                return Err(Error::Usage(format!(
                    "{option} is for the CUDA producer, and --producer {producer} asks for another: leave one of them out"
                )));
            }
        }
        config.handoff.check_scene(config.scene)?;
        match (self.batch, self.batch_latency) {
            (Some(Frames::Fixed(batch)), Some(_)) => Err(Error::Usage(format!(
                "--batch-latency is for --batch auto, and --batch {batch} is fixed"
            ))),
            _ if config.handoff != Handoff::Timeline && self.has_batch() => Err(Error::Usage(format!(
                "{} is for --handoff timeline: --handoff {} fills one slot at a time",
                if self.batch.is_some() { "--batch" } else { "--batch-latency" },
                config.handoff.name()
            ))),
            _ => Ok(()),
        }
    }

    pub fn has_batch(&self) -> bool {
        self.batch.is_some() || self.batch_latency.is_some()
    }

    /// Refuses a --ring that the hand-off ignores. `serve` does not call this: there, clients use the ring too.
    pub fn check_ring(&self) -> Result<()> {
        let handoff = self.config.handoff;
        match self.config.ring {
            Some(ring) if handoff.has_one_slot() && ring.depth() > 1 => Err(Error::Usage(format!(
                "--handoff {} has one slot, so there is no --ring {}: leave it out",
                handoff.name(),
                ring.depth()
            ))),
            _ => Ok(()),
        }
    }

    /// The settings that the options ask for.
    pub fn config(self, headless: bool) -> Result<Config> {
        self.check(headless)?;
        let Self { given, mut config, consent, .. } = self;
        consent.check(self.kernel.as_deref(), config.handoff == Handoff::Inline)?;
        config.risk_the_gpu = consent.risk_the_gpu;
        config.batch = match self.batch {
            Some(Frames::Fixed(frames)) => Batching::Fixed(frames),
            Some(Frames::Auto) | None => {
                Batching::Auto { latency: self.batch_latency.unwrap_or(Batching::LATENCY) }
            }
        };
        if let (Batching::Fixed(frames), Some(ring)) = (config.batch, config.ring)
            && frames as usize > ring.depth()
        {
            return Err(Error::Usage(format!(
                "--batch {frames} does not fit a ring of {}: a batch has at most as many frames as the ring has slots",
                ring.depth()
            )));
        }
        config.validation = match self.validation {
            Some(OnOff::On) => Validation::Required,
            Some(OnOff::Off) => Validation::Off,
            None if cfg!(debug_assertions) => Validation::IfInstalled,
            None => Validation::Off,
        };
        config.kernel = read_kernel(self.kernel.as_deref(), config.scene)?;
        if !given.has("style") {
            config.style = config.usual_style();
        }
        set_parameters(&mut config, &self.param)?;
        Ok(config)
    }
}
