// Looks at every vertex of a slot and counts those that are not of the frame being drawn. src/verify/stamp.rs says what
// a stamp is, src/verify/tally.rs what the counts mean. One invocation a vertex.

struct Parameters {
    vertices: u32,
    // Which of the frame's two looks: 0 before the draw, 1 after it.
    look: u32,
}

// As `RawCounts` in src/verify/checker.rs.
struct Counts {
    checked: atomic<u32>,
    stale: atomic<u32>,
    overwritten: atomic<u32>,
    missing: atomic<u32>,
    // Of the wrong vertices: the largest key, and KEYS minus the smallest one. Both begin at 0, so a fill resets them.
    highest: atomic<u32>,
    lowest: atomic<u32>,
}

var<immediate> parameters: Parameters;
@group(0) @binding(0) var<storage, read> slot: array<vec4u>;
@group(1) @binding(0) var<storage, read_write> counts: array<Counts, 2>;
// The stamp that the vertices should have. In memory, so that the same commands do for every frame.
@group(2) @binding(0) var<storage, read> expected: u32;

const WORKGROUP: u32 = 256;
const MASK: u32 = 0xfff;
const BLANK: u32 = 0xffffffff;
// A wrong vertex's key is how many frames it is ahead, from 1 to MASK, or MISSING.
const MISSING: u32 = MASK + 1;
const KEYS: u32 = MISSING + 1;

// Counted here first, so that a frame that is right costs one atomic on memory for each workgroup and look.
var<workgroup> checked: atomic<u32>;

@compute @workgroup_size(WORKGROUP)
fn check(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
         @builtin(local_invocation_index) local: u32) {
    let look = parameters.look;
    // Two dimensions of groups, because one may hold no more than 65,535.
    let i = (group.y * groups.x + group.x) * WORKGROUP + local;
    if i < parameters.vertices {
        let w = slot[i].w;
        atomicAdd(&checked, 1u);
        let ahead = (w - expected) & MASK;
        let key = select(ahead, MISSING, w == BLANK);
        if key != 0u {
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
    }
    workgroupBarrier();
    if local == 0u {
        atomicAdd(&counts[look].checked, atomicLoad(&checked));
    }
}
