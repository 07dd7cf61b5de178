use super::WindowState;
use crate::keys::{self, Action};
use crate::screen::{Input, Screen};
use wavefield_gpu::Result;
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_run::PanelEvent;

impl<S: Screen> WindowState<S> {
    /// Handles the inputs. Returns whether the user wants to leave.
    pub(crate) fn on_inputs(&mut self, inputs: Vec<Input>) -> Result<bool> {
        inputs.into_iter().try_fold(false, |leaves, input| Ok(leaves || self.on_input(input)?))
    }

    fn on_input(&mut self, input: Input) -> Result<bool> {
        self.wake();
        let event = match input {
            Input::Close => return Ok(true),
            Input::Size(extent, scale) => {
                self.screen.resize(extent);
                self.overlay.scale = scale;
                self.overlay.lay_out_soon();
                self.pace.retry = None;
                return Ok(false);
            }
            Input::Event(event) => event,
        };
        let (key, is_down, is_pressed) = match event {
            egui::Event::Key { key, pressed, repeat, .. } => (Some(key), pressed, pressed && !repeat),
            _ => (None, false, false),
        };
        let action = key.and_then(Action::of);
        let heard = key.and_then(keys::name).filter(|key| self.run.hears(key, action.is_some()));
        let action = action.filter(|_| heard.is_none());
        // egui would use the overlay's key, Tab, to move the focus.
        if action != Some(Action::Overlay) && self.overlay.on_event(&event) {
            return Ok(false);
        }
        if let Some(key) = heard {
            if is_down {
                self.run.tell(PanelEvent::Key { key });
            }
            return Ok(false);
        }
        let Some(action) = action.filter(|action| is_pressed && self.screen.takes(*action)) else {
            let (extent, scale) = (self.screen.extent(), self.overlay.scale);
            let image = self.run.engine.drawer.image_in(extent);
            // A drag counts in heights of a view.
            let height = self.run.engine.drawer.renderer.drawing().first_view(extent).height;
            let camera = &mut self.run.engine.drawer.view.camera;
            self.controls.handle(&event, camera, image, (height, scale));
            let clicked = self.controls.clicked(&event);
            if let Some(at) = clicked {
                let clicked = self.run.click((scale * at.x, scale * at.y), extent);
                clicked.or_else(|error| self.run.recover(error))?;
            }
            return Ok(false);
        };
        self.press(action)
    }

    fn press(&mut self, action: Action) -> Result<bool> {
        let parameters = &mut self.run.parameters;
        match action {
            Action::Pause => parameters.paused = !parameters.paused,
            Action::Step => self.pace.clock.step(parameters),
            Action::Colors => {
                parameters.colormap = parameters.colormap.next(parameters.own);
                self.recolor()?;
            }
            Action::Picture => self.save_picture()?,
            Action::Record => self.record()?,
            Action::FullScreen => self.screen.set_full(!self.screen.is_full()),
            Action::Overlay => {
                let toggled = self.overlay.toggle(&mut self.run.engine);
                toggled.or_else(|error| self.run.recover(error))?;
            }
            Action::Help => self.overlay.boxes.help = !self.overlay.boxes.help,
            Action::Reset => {
                self.controls.rotating = false;
                let drawing = self.run.engine.drawer.renderer.drawing();
                let is_own = *drawing.array() == DrawnArray::mesh(self.run.config.grid);
                self.run.engine.drawer.view.camera = match (is_own, drawing.is_flat()) {
                    (true, _) => self.controls.first,
                    (false, true) => self.run.config.camera_for(drawing.array()),
                    (false, false) => self.run.config.camera(),
                };
            }
            Action::Rotate => self.controls.rotating = !self.controls.rotating,
            Action::Close if self.overlay.close_innermost() => {}
            Action::Close if self.screen.is_full() => self.screen.set_full(false),
            Action::Close => return Ok(self.screen.takes(Action::Leave)),
            Action::Leave => return Ok(true),
        }
        Ok(false)
    }
}
