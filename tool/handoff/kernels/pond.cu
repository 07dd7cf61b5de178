// A pond that drops fall into: `wavefield --kernel pond`.
//
// What it teaches: state between frames, and neighbours without a race. The water
// is a mesh of nodes in the module's own memory, which is zero at first and keeps
// its content from launch to launch. A launch reads the nodes of the frame before
// and writes this frame's nodes elsewhere, so no thread waits for another.
// Neighbouring threads read neighbouring nodes, which the GPU joins into few large
// reads. wave.cu explains the signature.
//
//!PARAM run float 0.02 0.3 0.14 "per second"
//!PARAM loss float 0 3 0.4 "per second"
//!PARAM drops float 0 20 2.5 "per second"
//!PARAM depth float 0 0.5 0.25

// The speed of waves in a pond that is 2 across, the share of its speed that the
// water loses, the number of drops, and their depth.
struct Parameters {
    float run, loss, drops, depth;
};

constexpr unsigned NODES = 512;  // at most in each direction: such memory has a fixed size

constexpr float LEVEL = 0.5f;    // how strongly water is pulled back to its level
constexpr float RADIUS = 0.07f;  // of a drop

struct alignas(8) Node {
    float height, speed;  // upwards
};

static __device__ Node nodes[2][NODES * NODES];
static __device__ double seconds[2];

static __device__ double fraction(double a) { return a - floor(a); }

extern "C" __global__ void pond(float4 *vertices, unsigned cols, unsigned rows,
                                unsigned long long frame, double time, Parameters parameters)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned before = frame & 1, now = before ^ 1;
    const Node *old = nodes[before];

    // The first threads have one node each: there are no more nodes than vertices.
    unsigned across = min(cols, NODES), along = min(rows, NODES);
    if (i < across * along) {
        unsigned row = i / across, col = i - row * across;
        float dx = 2.0f / (across - 1), dz = 2.0f / (along - 1);
        float square = parameters.run * parameters.run;
        float a = square / (dx * dx), b = square / (dz * dz);

        // With longer steps than this the waves would grow without limit. So after a
        // late frame the pond is slower. If the time stands still, so does the pond.
        double since = seconds[before];
        float step = (float)min(time - since, (double)(0.9f * rsqrtf(a + b + LEVEL / 4.0f)));
        step = step > 0.0f ? step : 0.0f;

        // At the edge a node is its own neighbour, so waves are reflected.
        Node node = old[i];
        float h = node.height;
        float left = old[col > 0 ? i - 1 : i].height;
        float right = old[col + 1 < across ? i + 1 : i].height;
        float behind = old[row > 0 ? i - across : i].height;
        float ahead = old[row + 1 < along ? i + across : i].height;
        float pull = a * (left + right - 2.0f * h) + b * (behind + ahead - 2.0f * h);
        node.speed += step * (pull - LEVEL * h);
        node.speed /= 1.0f + step * parameters.loss;
        node.height += step * node.speed;

        // The fractional parts of multiples of these two numbers spread the drops
        // evenly. A drop pushes up as much water around itself as it pushes down.
        double drops = parameters.drops, drop = floor(time * drops);
        if (step > 0.0f && drop != floor(since * drops)) {
            float x = col * dx - (0.2f + 1.6f * (float)fraction(drop * 0.7548776662466927));
            float z = row * dz - (0.2f + 1.6f * (float)fraction(drop * 0.5698402909980532));
            float q = (x * x + z * z) * (1.0f / (RADIUS * RADIUS));
            if (q < 1.0f)
                node.height -= parameters.depth * (1.0f - q) * (1.0f - q) * (1.0f - 4.0f * q);
        }
        nodes[now][i] = node;
        if (i == 0)
            seconds[now] = time;
    }

    // A vertex lies on a node or, in a larger grid, between four. It shows the frame
    // before, because not all nodes of this frame are written yet.
    unsigned row = i / cols, col = i - row * cols;
    float u = col * ((float)(across - 1) / (cols - 1));
    float v = row * ((float)(along - 1) / (rows - 1));
    unsigned p = min((unsigned)u, across - 2), q = min((unsigned)v, along - 2);
    const Node *at = old + q * across + p;
    u -= p;
    v -= q;
    float near = at[0].height + u * (at[1].height - at[0].height);
    float far = at[across].height + u * (at[across + 1].height - at[across].height);
    float y = near + v * (far - near);
    float x = 2.0f * col / (cols - 1) - 1.0f, z = 2.0f * row / (rows - 1) - 1.0f;
    vertices[i] = make_float4(x, y, z, 0.5f + 8.0f * y);
}
