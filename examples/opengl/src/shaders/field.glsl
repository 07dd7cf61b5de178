// The field as a lit surface, as in tool/gpu/wgsl/field.wgsl, which has the explanations.

layout(location = 0) uniform mat4 view_projection;
layout(location = 1) uniform vec3 eye;
// cols, rows, tiles across
layout(location = 2) uniform uvec3 grid;
layout(binding = 0) uniform sampler2D palette;

#ifdef VERTEX

layout(std430, binding = 1) readonly buffer Vertices { vec4 vertices[]; };

layout(location = 0) out vec3 position;
layout(location = 1) out vec3 surface_normal;
layout(location = 2) out float value;
layout(location = 3) out vec2 uv;

const uint TILE = 32u;

vec4 vertex_at(uint col, uint row) {
    return vertices[row * grid.x + col];
}

void main() {
    uint corner = uint(gl_VertexID);
    uint tile = uint(gl_InstanceID);
    uvec2 last = grid.xy - uvec2(1u);
    uvec2 origin = TILE * uvec2(tile % grid.z, tile / grid.z);
    uvec2 at = min(origin + uvec2(corner % (TILE + 1u), corner / (TILE + 1u)), last);

    vec4 here = vertex_at(at.x, at.y);
    uvec2 before = max(at, uvec2(1u)) - uvec2(1u);
    uvec2 after = min(at + uvec2(1u), last);
    vec3 across = vertex_at(after.x, at.y).xyz - vertex_at(before.x, at.y).xyz;
    vec3 along = vertex_at(at.x, after.y).xyz - vertex_at(at.x, before.y).xyz;
    vec3 up = cross(along, across);
    float size = length(up);

    position = here.xyz;
    gl_Position = view_projection * vec4(here.xyz, 1.0);
    surface_normal = size > 0.0 ? up / size : vec3(0.0, 1.0, 0.0);
    value = here.w;
    uv = vec2(at) / vec2(last);
}

#else

layout(location = 0) in vec3 position;
layout(location = 1) in vec3 surface_normal;
layout(location = 2) in float value;
layout(location = 3) in vec2 uv;

layout(location = 0) out vec4 colour;

float lines(vec2 uv) {
    vec2 at = uv * 32.0;
    vec2 width = fwidth(at);
    vec2 distance = abs(fract(at - 0.5) - 0.5) / max(width, vec2(1e-6));
    float line = 1.0 - smoothstep(0.4, 1.4, min(distance.x, distance.y));
    return line * (1.0 - smoothstep(0.15, 0.45, max(width.x, width.y)));
}

const vec3 KEY_LIGHT = vec3(-0.46, 0.74, 0.49);
const vec3 KEY_COLOUR = vec3(1.00, 0.95, 0.87);
const vec3 SKY = vec3(0.62, 0.72, 0.92);
const vec3 GROUND = vec3(0.20, 0.16, 0.22);

void main() {
    float facing = gl_FrontFacing ? 1.0 : -1.0;
    vec3 normal = normalize(surface_normal) * facing;
    vec3 to_eye = normalize(eye - position);
    vec3 base = textureLod(palette, vec2(value, 0.5), 0.0).rgb;

    vec3 ambient = mix(GROUND, SKY, 0.5 + 0.5 * normal.y) * 0.42;
    float open = mix(0.62, 1.0, smoothstep(0.15, 0.75, value));
    vec3 diffuse = max(dot(normal, KEY_LIGHT), 0.0) * KEY_COLOUR;
    vec3 half_way = normalize(KEY_LIGHT + to_eye);
    float gloss = pow(max(dot(normal, half_way), 0.0), 48.0) * 0.30;
    float rim = pow(1.0 - max(dot(normal, to_eye), 0.0), 4.0) * 0.22;

    vec3 lit = base * (ambient * open + 0.95 * diffuse) + (gloss * KEY_COLOUR + rim * SKY) * open;
    colour = vec4(lit * (1.0 - 0.16 * lines(uv)), 1.0);
}

#endif
