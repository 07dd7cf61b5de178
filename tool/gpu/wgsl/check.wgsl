// Checks every stamp of a slot, or every texel of every level, and counts those that do not belong to the drawn frame.
// handoff/src/contents/frame_stamp.rs explains stamps, run/src/watch/verify/tally.rs the counts. One invocation per stamp or texel.

struct Parameters {
    // The number of stamps, or of texels in the whole chain.
    count: u32,
    // Which of the frame's two checks this is: 0 before the draw, 1 after it.
    look: u32,
    // The last word of each group of this size is a stamp. Not used for texels.
    stride: u32,
}

// Must match `RawCounts` in run/src/watch/verify/checker.rs.
struct Counts {
    checked: atomic<u32>,
    stale: atomic<u32>,
    overwritten: atomic<u32>,
    missing: atomic<u32>,
    // The largest key of the wrong vertices, and KEYS minus the smallest. Both start at 0, so a fill with zeros resets them.
    highest: atomic<u32>,
    lowest: atomic<u32>,
}

var<immediate> parameters: Parameters;
// `check` uses `slot`, `check_texels` uses `chain`.
@group(0) @binding(0) var<storage, read> slot: array<u32>;
@group(0) @binding(0) var chain: texture_2d<f32>;
@group(1) @binding(0) var<storage, read_write> counts: array<Counts, 2>;
// The stamp that is right for this frame. It is in memory, so that the same commands work for every frame.
@group(2) @binding(0) var<storage, read> expected: u32;

const WORKGROUP: u32 = 256;
const MASK: u32 = 0xfff;
const BLANK: u32 = 0xffffffff;
// A wrong vertex's key is the number of frames it is ahead, from 1 to MASK, or MISSING.
const MISSING: u32 = MASK + 1;
const KEYS: u32 = MISSING + 1;

// Counted here first, so that a correct frame needs only one atomic on memory per workgroup and check.
var<workgroup> checked: atomic<u32>;

// The grid of workgroups is two-dimensional, because one dimension holds at most 65,535.
fn index_of(group: vec3u, groups: vec3u, local: u32) -> u32 {
    return (group.y * groups.x + group.x) * WORKGROUP + local;
}

// Counts one vertex or texel with this stamp, or without a stamp if `stamped` is false.
fn count(stamp: u32, stamped: bool) {
    let look = parameters.look;
    atomicAdd(&checked, 1u);
    let key = select(MISSING, (stamp - expected) & MASK, stamped);
    if key == 0u {
        return;
    }
    if key == MISSING {
        atomicAdd(&counts[look].missing, 1u);
    } else if key <= MASK / 2 {
        atomicAdd(&counts[look].overwritten, 1u);
    } else {
        atomicAdd(&counts[look].stale, 1u);
    }
    atomicMax(&counts[look].highest, key);
    atomicMax(&counts[look].lowest, KEYS - key);
}

// Adds the workgroup's number of checked elements to memory. The whole workgroup must call this, at the end.
fn add_checked(local: u32) {
    workgroupBarrier();
    if local == 0u {
        atomicAdd(&counts[parameters.look].checked, atomicLoad(&checked));
    }
}

@compute @workgroup_size(WORKGROUP)
fn check(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
         @builtin(local_invocation_index) local: u32) {
    let i = index_of(group, groups, local);
    if i < parameters.count {
        let w = slot[(i + 1) * parameters.stride - 1];
        count(w, w != BLANK);
    }
    add_checked(local);
}

@compute @workgroup_size(WORKGROUP)
fn check_texels(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
                @builtin(local_invocation_index) local: u32) {
    var i = index_of(group, groups, local);
    if i < parameters.count {
        // Level after level, row after row. The size is computed instead of queried: neighbours in a workgroup may be
        // on different levels, and llvmpipe answers a query for all of them with the size of the first one's level.
        let largest = textureDimensions(chain, 0);
        var level = 0u;
        var size = largest;
        while i >= size.x * size.y {
            i -= size.x * size.y;
            level += 1u;
            size = max(largest >> vec2u(level), vec2u(1));
        }
        let texel = textureLoad(chain, vec2u(i % size.x, i / size.x), level);
        // The bits of the half floats in memory. Stamped half floats are normal numbers, so no conversion changes them.
        let xy = pack2x16float(texel.xy);
        let zw = pack2x16float(texel.zw);
        let halves = vec4u(xy, xy >> 16, zw, zw >> 16);
        let exponents = halves & vec4u(0x7c00);
        let parts = (halves & vec4u(7)) << vec4u(0, 3, 6, 9);
        let stamped = all(exponents != vec4u(0)) && all(exponents != vec4u(0x7c00));
        count(parts.x | parts.y | parts.z | parts.w, stamped);
    }
    add_checked(local);
}
