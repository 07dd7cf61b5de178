//! Applies what the user changes in the overlay, and reloads kernels that are saved.

use std::sync::atomic::Ordering;

use tracing::trace_span;

use super::{Running, WindowState};
use crate::overlay::{self, Draft, OverlayView};
use crate::screen::Screen;
use wavefield_draw::{Camera, FieldView};
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::{Error, Result};
use wavefield_run::{Config, OverlayMode};

pub(super) fn own(config: &Config) -> Option<KernelSource> {
    config.kernel.clone().filter(|_| config.has_own_kernel())
}

impl<S: Screen> WindowState<S> {
    /// Lays out the overlay if that is due, and applies what the user has changed in it.
    pub(super) fn lay_out(&mut self) -> Result<()> {
        if !self.overlay.is_due(&self.run.engine.drawer.view) {
            return Ok(());
        }
        let still = self.run.config.overlay == OverlayMode::Legend && self.run.shown_client().is_some();
        let Self { run, screen, overlay, .. } = self;
        let Running { engine, hook, config, parameters, choice, own, .. } = run;
        let (own, serves) = (own.as_ref(), hook.is_some());
        let panel = hook.as_mut().and_then(|hook| hook.panel());
        let mut view = OverlayView { engine, config, choice, own, screen, serves, still, panel };
        let (wish, platform) = overlay.lay_out(&mut view, parameters)?;
        screen.follow(platform);
        wish.map_or(Ok(()), |wish| self.follow(wish))
    }

    fn follow(&mut self, wish: Draft) -> Result<()> {
        let Draft { mut config, parameters, values, view, step, copy } = wish;
        let shown = &mut self.run.engine.drawer.view;
        *shown = FieldView { camera: shown.camera, ..view };
        if let Some(command) = copy {
            let words = self.screen.copy(&command);
            self.announce(Ok(words))?;
        }
        let run = &mut self.run;
        if config.kernel == run.config.kernel && config.scene == run.config.scene {
            run.engine.work.producer.set_parameters(&values);
            run.config.parameters = run.engine.work.producer.profile().parameters.values(&values);
            config.parameters = run.config.parameters;
        }
        let other_colors = parameters.colormap != run.parameters.colormap;
        run.parameters = parameters;
        if other_colors {
            self.recolor()?;
        }
        if step {
            self.pace.clock.step(&parameters);
        }
        let run = &mut self.run;
        let before = overlay::settings(&run.config, &run.engine);
        if config.present != run.config.present {
            self.screen.set_mode(config.present);
            run.config.present = config.present;
        }
        config.color_map = run.config.color_map;
        if config.style != run.config.style
            && config == (Config { style: config.style, ..run.config.clone() })
        {
            run.engine.set_style(config.style)?;
            run.config.style = config.style;
        }
        if before != overlay::settings(&run.config, &run.engine) {
            self.switched(before);
        }
        if config != self.run.config
            && let Some(error) = self.switch(config)?
        {
            wavefield_gpu::note!("note: the settings were not changed: {error}");
            self.overlay.boxes.notify(error.to_string());
        }
        Ok(())
    }

    /// Switches to a saved kernel. If it is faulty, the old kernel keeps running and the problem is shown.
    pub(super) fn reload(&mut self) -> Result<()> {
        let Running { reload: Some(reload), config, choice, .. } = &mut self.run else { return Ok(()) };
        let device = choice.twin.as_ref().map(|(_, info)| info);
        let Some(read) = reload.poll(config, device) else { return Ok(()) };
        let name = reload.file.display().to_string();
        let problem = match read {
            // This kernel is already running.
            Ok(source) if config.kernel.as_ref() == Some(&source) => None,
            Ok(source) => {
                let refused = self.take_kernel(source)?;
                if refused.is_none() {
                    self.announce(Ok(format!("reloaded {name}")))?;
                }
                refused
            }
            Err(error) => Some(error),
        };
        if let Some(error) = &problem {
            wavefield_gpu::note!("note: not reloaded, the last good kernel keeps running: {error}");
        }
        self.overlay.boxes.show_problem(problem.map(|error| error.to_string()));
        Ok(())
    }

    /// Switches to this kernel, or returns why that is impossible. Parameters with the same names keep their
    /// values.
    fn take_kernel(&mut self, source: KernelSource) -> Result<Option<Error>> {
        let before = &self.run.engine.work.producer.profile().parameters;
        let parameters = match source.parameters() {
            Ok(parameters) => parameters.carry(before, &self.run.engine.work.producer.parameters),
            Err(error) => return Ok(Some(error)),
        };
        self.switch(Config { kernel: Some(source), parameters, ..self.run.config.clone() })
    }

    pub(super) fn recolor(&mut self) -> Result<()> {
        self.run.drain()?;
        let map = self.run.parameters.colormap;
        self.run.config.color_map = map;
        self.run.engine.set_color_maps(&[(0, map)])
    }

    /// Changes the settings from the next frame on, or changes nothing and returns why. Fails only if the
    /// engine can no longer draw.
    fn switch(&mut self, config: Config) -> Result<Option<Error>> {
        let run = &mut self.run;
        let before = overlay::settings(&run.config, &run.engine);
        let switched = trace_span!("switch").in_scope(|| run.engine.switch(&run.choice, &config));
        if let Err(error) = switched {
            return if run.engine.work.has_failed() { Err(error) } else { Ok(Some(error)) };
        }
        if let Some(film) = &mut self.pictures.film {
            film.all_done();
        }
        if config.scene != run.config.scene {
            self.controls.start_at(Camera::of(config.scene), &mut run.engine.drawer.view.camera);
        }
        if config.kernel != run.config.kernel {
            // The problem on show was in the old kernel.
            self.overlay.boxes.show_problem(None);
            if let Some(reload) = run.reload.as_ref().filter(|_| !run.config.has_own_kernel()) {
                // The file may have been saved while another kernel ran.
                reload.saved.store(true, Ordering::Relaxed);
            }
            run.own = own(&config).or(run.own.take());
        }
        run.config = config;
        self.switched(before);
        Ok(None)
    }

    /// Starts new figures and frame times. Call this after a switch from the settings `before`.
    fn switched(&mut self, before: Vec<String>) {
        self.overlay.switched(before);
        // The duration of the switch itself is not a frame time.
        self.pace.clock.ignore_gap();
    }
}
