// A plane to the horizon with the texture on it, as in tool/gpu/wgsl/plane.wgsl, which has the explanations.

layout(location = 0) uniform mat4 view_projection;
layout(location = 1) uniform vec3 eye;
layout(binding = 0) uniform sampler2D palette;
layout(binding = 1) uniform sampler2D surface;

#ifdef VERTEX

layout(location = 0) out vec3 position;
layout(location = 1) out vec3 on_screen;

const float REACH = 80.0;

void main() {
    vec2 corners[6] = vec2[](
        vec2(-1.0, -1.0), vec2(-1.0, 1.0), vec2(1.0, -1.0),
        vec2(1.0, -1.0), vec2(-1.0, 1.0), vec2(1.0, 1.0)
    );
    vec2 corner = corners[gl_VertexID];
    position = vec3(REACH * corner.x, 0.0, REACH * corner.y);
    gl_Position = view_projection * vec4(position, 1.0);
    on_screen = gl_Position.xyw;
}

#else

layout(location = 0) in vec3 position;
layout(location = 1) in vec3 on_screen;

layout(location = 0) out vec4 colour;

const float TILE = 2.0;
const float HEIGHT = 0.40;
const float SLOPE = 0.06;
const vec3 TOP = vec3(0.0035, 0.0050, 0.0090);
const vec3 GLOW = vec3(0.018, 0.025, 0.043);

vec3 background(vec2 at) {
    vec2 scaled = at * vec2(0.75, 1.0);
    return mix(TOP, GLOW, exp(-1.6 * dot(scaled, scaled)));
}

const vec3 KEY_LIGHT = vec3(-0.46, 0.74, 0.49);
const vec3 KEY_COLOUR = vec3(1.00, 0.95, 0.87);
const vec3 SKY = vec3(0.62, 0.72, 0.92);
const vec3 GROUND = vec3(0.20, 0.16, 0.22);

void main() {
    float facing = gl_FrontFacing ? 1.0 : -1.0;
    vec4 data = texture(surface, position.xz / TILE);
    vec2 slopes = data.yz * (HEIGHT * 0.5 / (SLOPE * TILE));
    vec3 normal = normalize(vec3(-slopes.x, 1.0, -slopes.y)) * facing;
    vec3 to_eye = normalize(eye - position);
    vec3 base = textureLod(palette, vec2(data.x, 0.5), 0.0).rgb;

    vec3 ambient = mix(GROUND, SKY, 0.5 + 0.5 * normal.y) * 0.40;
    float open = mix(0.55, 1.0, smoothstep(0.15, 0.75, data.x));
    vec3 diffuse = max(dot(normal, KEY_LIGHT), 0.0) * KEY_COLOUR;
    vec3 half_way = normalize(KEY_LIGHT + to_eye);
    float gloss = pow(max(dot(normal, half_way), 0.0), 40.0) * 0.65;
    float rim = pow(1.0 - max(dot(normal, to_eye), 0.0), 5.0) * 0.16;

    vec3 drawn = mix(base * 0.25, mix(base, vec3(1.0), 0.55), smoothstep(0.35, 0.85, data.x));
    vec3 surface_colour = mix(base, drawn, data.w * 0.8);
    vec3 lit = surface_colour * (ambient * open + 0.95 * diffuse) + (gloss * KEY_COLOUR + rim * SKY) * open;

    float haze = exp(-pow(length(position - eye) / 16.0, 2.0));
    colour = vec4(mix(background(on_screen.xy / on_screen.z), lit, haze), 1.0);
}

#endif
