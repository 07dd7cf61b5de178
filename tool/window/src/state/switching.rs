use std::sync::atomic::Ordering;

use tracing::trace_span;

use super::WindowState;
use crate::overlay::{self, Draft};
use crate::screen::Screen;
use wavefield_draw::Camera;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::{Error, Result};
use wavefield_run::Config;

pub(super) fn own(config: &Config) -> Option<KernelSource> {
    config.kernel.clone().filter(|_| config.has_own_kernel())
}

impl<S: Screen> WindowState<S> {
    pub(super) fn follow(&mut self, wish: Draft) -> Result<()> {
        let Draft { mut config, parameters, values, step, .. } = wish;
        if config.kernel == self.config.kernel && config.scene == self.config.scene {
            self.engine.work.producer.set_parameters(&values);
            self.config.parameters = self.engine.work.producer.parameters;
            config.parameters = self.config.parameters;
        }
        let other_colors = parameters.colormap != self.controls.parameters.colormap;
        self.controls.parameters = parameters;
        if other_colors {
            self.recolor()?;
        }
        if step {
            self.clock.step(&self.controls.parameters);
        }
        let before = overlay::settings(&self.config, &self.engine);
        if config.present != self.config.present {
            self.screen.set_mode(config.present);
            self.config.present = config.present;
        }
        config.color_map = self.config.color_map;
        if config.style != self.config.style
            && config == (Config { style: config.style, ..self.config.clone() })
        {
            self.engine.set_style(config.style)?;
            self.config.style = config.style;
        }
        if before != overlay::settings(&self.config, &self.engine) {
            self.switched(before);
        }
        if config != self.config
            && let Some(error) = self.switch(config)?
        {
            wavefield_gpu::note!("note: the settings were not changed: {error}");
            self.overlay.notify(error.to_string());
        }
        Ok(())
    }

    /// Takes over a saved kernel. If it is faulty, the old one keeps running, and a problem is shown.
    pub(super) fn reload(&mut self) -> Result<()> {
        let Some(reload) = &mut self.reload else { return Ok(()) };
        let device = self.choice.twin.as_ref().map(|(_, info)| info);
        let Some(read) = reload.poll(&self.config, device) else { return Ok(()) };
        let name = reload.file.display().to_string();
        let problem = match read {
            // It is already drawn.
            Ok(source) if self.config.kernel.as_ref() == Some(&source) => None,
            Ok(source) => {
                let refused = self.take_kernel(source)?;
                if refused.is_none() {
                    wavefield_gpu::note!("note: reloaded {name}");
                    self.overlay.notify(format!("reloaded {name}"));
                }
                refused
            }
            Err(error) => Some(error),
        };
        if let Some(error) = &problem {
            wavefield_gpu::note!("note: not reloaded, the last good kernel keeps running: {error}");
        }
        self.overlay.show_problem(problem.map(|error| error.to_string()));
        Ok(())
    }

    /// Makes this kernel fill the field. Parameters of the same names keep their values. Returns any refusal.
    fn take_kernel(&mut self, source: KernelSource) -> Result<Option<Error>> {
        let before = &self.engine.work.producer.profile().parameters;
        let parameters = match source.parameters() {
            Ok(parameters) => parameters.carry(before, &self.engine.work.producer.parameters),
            Err(error) => return Ok(Some(error)),
        };
        self.switch(Config { kernel: Some(source), parameters, ..self.config.clone() })
    }

    pub(super) fn recolor(&mut self) -> Result<()> {
        self.drain()?;
        let map = self.controls.parameters.colormap;
        self.config.color_map = map;
        self.engine.set_color_map(map)
    }

    /// Changes the settings from the next frame on, or changes nothing and returns why.
    fn switch(&mut self, config: Config) -> Result<Option<Error>> {
        let before = overlay::settings(&self.config, &self.engine);
        let switched = trace_span!("switch").in_scope(|| self.engine.switch(&self.choice, &config));
        match switched {
            Ok(()) => {
                if let Some(film) = &mut self.film {
                    film.all_done();
                }
                if config.scene != self.config.scene {
                    self.controls.start_at(Camera::of(config.scene), &mut self.engine.drawer.view.camera);
                }
                if config.kernel != self.config.kernel {
                    // The problem was the old kernel's.
                    self.overlay.show_problem(None);
                    if let Some(reload) = self.reload.as_ref().filter(|_| !self.config.has_own_kernel()) {
                        // The file may have been saved while another kernel ran.
                        reload.saved.store(true, Ordering::Relaxed);
                    }
                    self.own = own(&config).or(self.own.take());
                }
                self.config = config;
                self.switched(before);
                Ok(None)
            }
            Err(error) if !self.engine.work.has_failed() => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Call this after a switch from the settings `before`: frame times are new from now on.
    fn switched(&mut self, before: Vec<String>) {
        self.overlay.switched(before);
        // The time of the switch itself is not a frame time.
        self.clock.ignore_gap();
    }
}
