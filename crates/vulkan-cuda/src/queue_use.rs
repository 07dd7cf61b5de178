//! Where and how Vulkan uses the slots of a ring.

use ash::vk;
use vk::{AccessFlags as Access, PipelineStageFlags as Stage};

use crate::vulkan::Vk;
use crate::{Error, Result};

/// Where and how Vulkan uses all slots of a ring.
#[derive(Clone, Copy, Debug)]
pub struct QueueUse {
    /// The index of the queue family.
    pub family: u32,
    /// The stages that read the slots, or write them in a [`RingToCuda`](crate::RingToCuda): stages of Vulkan 1.0 that
    /// the queue family has. `ALL_COMMANDS` stands for every other stage.
    pub stage: Stage,
    /// How these stages access them, at least once: accesses of Vulkan 1.0 that one of the stages makes. `MEMORY_READ` and
    /// `MEMORY_WRITE` stand for every other access.
    pub access: Access,
}

/// The shader stages and the others of a graphics queue.
const GRAPHICS_SHADERS: u32 = Stage::VERTEX_SHADER.as_raw()
    | Stage::TESSELLATION_CONTROL_SHADER.as_raw()
    | Stage::TESSELLATION_EVALUATION_SHADER.as_raw()
    | Stage::GEOMETRY_SHADER.as_raw()
    | Stage::FRAGMENT_SHADER.as_raw();
const FRAGMENT_TESTS: u32 = Stage::EARLY_FRAGMENT_TESTS.as_raw() | Stage::LATE_FRAGMENT_TESTS.as_raw();
const GRAPHICS: u32 = GRAPHICS_SHADERS
    | FRAGMENT_TESTS
    | Stage::DRAW_INDIRECT.as_raw()
    | Stage::VERTEX_INPUT.as_raw()
    | Stage::COLOR_ATTACHMENT_OUTPUT.as_raw();
const COMPUTE: u32 = Stage::DRAW_INDIRECT.as_raw() | Stage::COMPUTE_SHADER.as_raw();

/// Which stages make which accesses: "Supported access types" in the specification's chapter on synchronization.
const MADE_BY: [(Access, u32); 14] = [
    (Access::INDIRECT_COMMAND_READ, Stage::DRAW_INDIRECT.as_raw()),
    (Access::INDEX_READ, Stage::VERTEX_INPUT.as_raw()),
    (Access::VERTEX_ATTRIBUTE_READ, Stage::VERTEX_INPUT.as_raw()),
    (Access::UNIFORM_READ, GRAPHICS_SHADERS | Stage::COMPUTE_SHADER.as_raw()),
    (Access::INPUT_ATTACHMENT_READ, Stage::FRAGMENT_SHADER.as_raw()),
    (Access::SHADER_READ, GRAPHICS_SHADERS | Stage::COMPUTE_SHADER.as_raw()),
    (Access::SHADER_WRITE, GRAPHICS_SHADERS | Stage::COMPUTE_SHADER.as_raw()),
    (Access::COLOR_ATTACHMENT_READ, Stage::COLOR_ATTACHMENT_OUTPUT.as_raw()),
    (Access::COLOR_ATTACHMENT_WRITE, Stage::COLOR_ATTACHMENT_OUTPUT.as_raw()),
    (Access::DEPTH_STENCIL_ATTACHMENT_READ, FRAGMENT_TESTS),
    (Access::DEPTH_STENCIL_ATTACHMENT_WRITE, FRAGMENT_TESTS),
    (Access::TRANSFER_READ, Stage::TRANSFER.as_raw()),
    (Access::TRANSFER_WRITE, Stage::TRANSFER.as_raw()),
    (Access::from_raw(Access::MEMORY_READ.as_raw() | Access::MEMORY_WRITE.as_raw()), u32::MAX),
];

impl QueueUse {
    /// Fails if the device has no such family, the family no such stage, or the stages make no such access: in a barrier
    /// they would be undefined behaviour (`VUID-vkCmdPipelineBarrier-srcStageMask-06461`, `-dstAccessMask-02816`).
    pub(crate) fn check(self, vk: &Vk) -> Result<()> {
        // SAFETY: the adopted device's own.
        let families = unsafe { vk.instance().get_physical_device_queue_family_properties(vk.physical()) };
        let wrong =
            |why: String| Err(Error::Rule(format!("{self:?} of a ring on {}: {why}", vk.info().name)));
        match families.get(self.family as usize) {
            None => wrong(format!("the device has {} queue families", families.len())),
            Some(family) => self.fits(family.queue_flags).or_else(wrong),
        }
    }

    /// The same for a family with these flags.
    fn fits(self, family: vk::QueueFlags) -> Result<(), String> {
        let (graphics, compute) =
            (family.contains(vk::QueueFlags::GRAPHICS), family.contains(vk::QueueFlags::COMPUTE));
        let of_family = if graphics { GRAPHICS } else { 0 } | if compute { COMPUTE } else { 0 };
        let has = of_family
            | if graphics { Stage::ALL_GRAPHICS.as_raw() } else { 0 }
            | Stage::TRANSFER.as_raw()
            | Stage::ALL_COMMANDS.as_raw();
        let unknown = self.stage.as_raw() & !has;
        if self.stage.is_empty() || unknown != 0 {
            let stage = if self.stage.is_empty() {
                "no stage".into()
            } else {
                format!("{:?}", Stage::from_raw(unknown))
            };
            return Err(format!("the family has not {stage}; ALL_COMMANDS stands for every stage"));
        }
        let stages = match self.stage {
            stage if stage.contains(Stage::ALL_COMMANDS) => of_family | Stage::TRANSFER.as_raw(),
            stage if stage.contains(Stage::ALL_GRAPHICS) => stage.as_raw() | GRAPHICS,
            stage => stage.as_raw(),
        };
        let made = MADE_BY
            .iter()
            .filter(|(_, by)| by & stages != 0)
            .fold(Access::empty(), |all, (one, _)| all | *one);
        if self.access.is_empty() || !made.contains(self.access) {
            return Err(format!(
                "the stages make the accesses {made:?}, at least one is needed; MEMORY_READ and MEMORY_WRITE stand for every one"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_that_no_barrier_may_have_is_refused() {
        let (graphics, compute, transfer) = (
            vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE,
            vk::QueueFlags::COMPUTE,
            vk::QueueFlags::TRANSFER,
        );
        let fits = |flags, stage, access| QueueUse { family: 0, stage, access }.fits(flags).is_ok();
        for (flags, stage, access) in [
            (graphics, Stage::VERTEX_SHADER | Stage::TRANSFER, Access::SHADER_READ | Access::TRANSFER_READ),
            (graphics, Stage::ALL_GRAPHICS, Access::VERTEX_ATTRIBUTE_READ | Access::COLOR_ATTACHMENT_WRITE),
            (graphics, Stage::ALL_COMMANDS, Access::SHADER_WRITE | Access::TRANSFER_READ),
            (compute, Stage::COMPUTE_SHADER, Access::UNIFORM_READ | Access::MEMORY_WRITE),
            (transfer, Stage::ALL_COMMANDS, Access::TRANSFER_WRITE),
            (transfer, Stage::TRANSFER, Access::MEMORY_READ),
        ] {
            assert!(fits(flags, stage, access), "{flags:?} {stage:?} {access:?}");
        }
        for (flags, stage, access) in [
            (graphics, Stage::empty(), Access::SHADER_READ),
            (graphics, Stage::VERTEX_SHADER, Access::empty()),
            (graphics, Stage::VERTEX_SHADER, Access::COLOR_ATTACHMENT_WRITE),
            (graphics, Stage::from_raw(1 << 30), Access::SHADER_READ),
            (graphics, Stage::ALL_COMMANDS, Access::from_raw(1 << 30)),
            (graphics, Stage::HOST, Access::HOST_READ),
            (compute, Stage::ALL_GRAPHICS, Access::SHADER_READ),
            (compute, Stage::ALL_COMMANDS, Access::VERTEX_ATTRIBUTE_READ),
            (transfer, Stage::COMPUTE_SHADER, Access::SHADER_READ),
            (transfer, Stage::ALL_COMMANDS, Access::SHADER_READ),
        ] {
            assert!(!fits(flags, stage, access), "{flags:?} {stage:?} {access:?}");
        }
    }
}
