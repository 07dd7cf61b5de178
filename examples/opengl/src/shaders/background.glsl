// A calm gradient behind everything, as in tool/gpu/wgsl/background.wgsl.

#ifdef VERTEX

layout(location = 0) out vec2 at;

void main() {
    at = vec2(float(gl_VertexID & 1) * 4.0 - 1.0, float(gl_VertexID >> 1) * 4.0 - 1.0);
    // Depth 0 is the farthest: the projection's depth is reversed.
    gl_Position = vec4(at, 0.0, 1.0);
}

#else

layout(location = 0) in vec2 at;

layout(location = 0) out vec4 colour;

const vec3 TOP = vec3(0.0035, 0.0050, 0.0090);
const vec3 GLOW = vec3(0.018, 0.025, 0.043);

void main() {
    vec2 scaled = at * vec2(0.75, 1.0);
    float glow = exp(-1.6 * dot(scaled, scaled));
    float noise = fract(52.9829189 * fract(dot(gl_FragCoord.xy, vec2(0.06711056, 0.00583715)))) - 0.5;
    colour = vec4(mix(TOP, GLOW, glow) * (1.0 + noise * 0.06), 1.0);
}

#endif
