//! A GLSL program, with the compiler's messages.

use std::rc::Rc;

use anyhow::{Result, bail};
use glow::HasContext;

use crate::gl::Gl;

pub struct Program {
    pub raw: glow::Program,
    gl: Rc<Gl>,
}

impl Program {
    /// Compiles each of a file's stages, with these words defined, and links them.
    pub fn new(gl: &Rc<Gl>, source: &str, stages: &[(u32, &[&str])]) -> Result<Self> {
        // SAFETY: (and below) the context is current, and the objects belong to it.
        let program = unsafe { gl.raw.create_program() }.map_err(anyhow::Error::msg)?;
        let program = Self { raw: program, gl: gl.clone() };
        for (stage, defined) in stages {
            let defined: String = defined.iter().map(|word| format!("#define {word}\n")).collect();
            // SAFETY: as above. An attached shader is deleted with its program.
            unsafe {
                let shader = gl.raw.create_shader(*stage).map_err(anyhow::Error::msg)?;
                gl.raw.shader_source(shader, &format!("#version 450 core\n{defined}#line 1\n{source}"));
                gl.raw.compile_shader(shader);
                gl.raw.attach_shader(program.raw, shader);
                gl.raw.delete_shader(shader);
                if !gl.raw.get_shader_compile_status(shader) {
                    bail!("{} refused a shader: {}", gl.name, gl.raw.get_shader_info_log(shader));
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            gl.raw.link_program(program.raw);
            if !gl.raw.get_program_link_status(program.raw) {
                bail!("{} refused a program: {}", gl.name, gl.raw.get_program_info_log(program.raw));
            }
        }
        Ok(program)
    }

    /// A vertex shader and a fragment shader in one file.
    pub fn drawing(gl: &Rc<Gl>, source: &str) -> Result<Self> {
        let stages = [(glow::VERTEX_SHADER, &["VERTEX"][..]), (glow::FRAGMENT_SHADER, &["FRAGMENT"])];
        Self::new(gl, source, &stages)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { self.gl.raw.delete_program(self.raw) };
    }
}

/// The location of a uniform, as given in the shader.
pub const fn at(location: u32) -> Option<glow::UniformLocation> {
    Some(glow::NativeUniformLocation(location))
}
