//! The options of a run that several commands share, and the [`Config`] that results from them.

use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use wavefield_gpu::{Error, Result, report::word};
use wavefield_gpu::{cuda::KernelSource, vulkan::Validation};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::gallery;
use wavefield_run::{Batching, Config, ProducerKind, RISK, Scene, parse};

use super::help;

// The settings of a run, and options that differ between commands or depend on each other.
#[derive(Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub config: Config,
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Slots that CUDA fills for each wait, with --handoff timeline. A larger batch makes the hand-off
    /// cheaper and adds latency. auto chooses the smallest batch whose hand-off takes at most a twentieth
    /// of a frame, and adapts it during the run [default: auto; serve: 1].
    #[arg(long, value_name = "auto|1..=RING", value_parser = parse::batching, allow_hyphen_values = true, help_heading = help::HOW)]
    batch: Option<Batching>,
    /// With --batch auto: the longest time in milliseconds that the batch may delay a frame [default: 33].
    #[arg(long, value_name = "MS", value_parser = parse::milliseconds, allow_hyphen_values = true, help_heading = help::HOW)]
    batch_latency: Option<Duration>,
    /// Draw without a window.
    #[arg(long, help_heading = help::HOW)]
    pub headless: bool,
    /// Use the Khronos validation layer with synchronization validation: any error ends the run with exit
    /// code 1 [default: on in debug builds if it is installed, otherwise off].
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = help::DIAGNOSIS)]
    validation: Option<Validation>,
}

#[derive(Args)]
pub(super) struct KernelArgs {
    /// Run a kernel other than the wave: ripples, ocean, pond or swarm, or a file of your own (its signature is in
    /// tool/handoff/kernels/README.md). A .ptx file is loaded; a .cu file is compiled by NVRTC first. If the file has several
    /// entries, add :ENTRY. A plain run in a window reloads the file whenever it is saved.
    #[arg(long, value_name = "NAME|FILE[:ENTRY]", value_parser = parse::name, help_heading = help::WHAT)]
    pub kernel: Option<String>,
    /// Set a parameter of the kernel; may be repeated. The wave has amplitude and frequency. A kernel of
    /// your own declares its parameters in lines of //!PARAM (tool/handoff/kernels/README.md).
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::parameter, help_heading = help::WHAT)]
    param: Vec<(String, f32)>,
    /// Let --handoff inline run a kernel of your own. If it faults inside Vulkan's command buffer, no process
    /// can draw on this GPU any more. Without this option such a kernel is refused.
    #[arg(long, help_heading = help::HOW)]
    risk_the_gpu: bool,
}

impl KernelArgs {
    /// Refuses to put a user's own kernel into Vulkan's command buffer without `--risk-the-gpu`.
    pub(super) fn check_inline(&self) -> Result<()> {
        match &self.kernel {
            Some(kernel) if !self.risk_the_gpu && gallery::named(kernel)?.is_none() => {
                Err(Error::Usage(format!("--kernel {kernel} does not run inline: {RISK}")))
            }
            _ => Ok(()),
        }
    }

    /// Reads the kernel and sets its parameters. Fails if the kernel lacks one of the parameters or does not
    /// fit the scene.
    pub(super) fn apply(&self, config: &mut Config) -> Result<()> {
        config.risk_the_gpu = self.risk_the_gpu;
        config.kernel =
            self.kernel.as_deref().map(|argument| read_kernel(argument, config.scene)).transpose()?;
        let kernel = config.kernel();
        let given = self.param.iter().map(|(name, value)| (name.as_str(), *value));
        let chosen = kernel.parameters()?.choose(&kernel.name, &[], given);
        config.parameters = chosen.map_err(|problem| Error::Usage(format!("--param: {problem}")))?;
        Ok(())
    }
}

fn read_kernel(argument: &str, scene: Scene) -> Result<KernelSource> {
    match (gallery::named(argument)?, scene) {
        (Some(entry), Scene::Field) => Ok(entry.source()),
        (Some(_), Scene::Texture) => Err(Error::Usage(format!(
            "--kernel {argument} fills a field, and --scene texture has none: leave one of them out"
        ))),
        (None, _) => {
            let kernel = KernelSource::from_argument(argument)?;
            kernel.check_signature(scene.signature())?;
            Ok(kernel)
        }
    }
}

fn is_given(matches: &ArgMatches, option: &str) -> bool {
    matches.value_source(option) == Some(ValueSource::CommandLine)
}

impl RunArgs {
    /// Refuses options that have no effect because of another option, or because the run has a window, or has
    /// none.
    fn check(&self, headless: bool, matches: &ArgMatches) -> Result<()> {
        let config = &self.config;
        if let Some(option) =
            ["present", "overlay"].iter().find(|option| headless && is_given(matches, option))
        {
            return Err(Error::Usage(format!(
                "--{option} is for a window, and this run has none: leave it out"
            )));
        }
        if !headless && config.output.is_some() {
            return Err(Error::Usage(
                "--output writes the last frame of a run without a window: add --headless".into(),
            ));
        }
        let gif = config.record.as_ref().is_some_and(|path| path.as_os_str() != "-");
        if is_given(matches, "record_side") && !gif {
            return Err(Error::Usage("--record-side is for --record FILE.gif".into()));
        }
        if config.scene == Scene::Texture && is_given(matches, "style") {
            return Err(Error::Usage(format!(
                "--style {} is for the field: the plane of --scene texture is always drawn in the same way",
                word(config.style)
            )));
        }
        if !config.producer.may_use_cuda() {
            let kernel = &self.kernel.kernel;
            let entry = kernel.as_deref().map(gallery::named).transpose()?.flatten();
            let has_shader =
                config.producer == ProducerKind::Compute && entry.is_some_and(|entry| entry.shader.is_some());
            let for_cuda = [
                (kernel.is_some() && !has_shader, "--kernel"),
                (is_given(matches, "handoff"), "--handoff"),
                (self.batch.is_some(), "--batch"),
                (self.batch_latency.is_some(), "--batch-latency"),
            ];
            if let Some((_, option)) = for_cuda.iter().find(|(given, _)| *given) {
                return Err(Error::Usage(format!(
                    "{option} is for the CUDA producer, and --producer {} asks for another: leave one of them out",
                    word(config.producer)
                )));
            }
        }
        config.handoff.check_scene(config.scene)?;
        match (self.batch, self.batch_latency) {
            (Some(Batching::Fixed(batch)), Some(_)) => Err(Error::Usage(format!(
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

    pub(super) fn has_batch(&self) -> bool {
        self.batch.is_some() || self.batch_latency.is_some()
    }

    /// Refuses a --ring that the hand-off ignores. `serve` skips this check: its clients use the ring too.
    pub(super) fn check_ring(&self) -> Result<()> {
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

    /// Returns the settings of the run. `matches` are the arguments of the subcommand, if there is one.
    pub(super) fn config(self, headless: bool, matches: &ArgMatches) -> Result<Config> {
        self.check(headless, matches)?;
        if self.config.handoff == Handoff::Inline {
            self.kernel.check_inline()?;
        }
        let mut config = self.config;
        config.batch = match (self.batch, self.batch_latency) {
            (Some(fixed @ Batching::Fixed(_)), _) => fixed,
            (_, Some(latency)) => Batching::Auto { latency },
            _ => Batching::default(),
        };
        if let (Batching::Fixed(frames), Some(ring)) = (config.batch, config.ring)
            && frames as usize > ring.depth()
        {
            return Err(Error::Usage(format!(
                "--batch {frames} does not fit a ring of {}: a batch has at most as many frames as the ring has slots",
                ring.depth()
            )));
        }
        config.any_grid = !is_given(matches, "grid");
        config.any_samples = !is_given(matches, "samples");
        config.validation = self.validation.unwrap_or(Validation::usual());
        self.kernel.apply(&mut config)?;
        if !is_given(matches, "style") {
            config.style = config.usual_style();
        }
        Ok(config)
    }
}
