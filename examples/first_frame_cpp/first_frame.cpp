// A frame by hand: CUDA writes vertices, and Vulkan draws them from the same memory. The two wait for each other on the GPU.
//
// This is ../first_frame.rs in C++, step by step, with the same names. No library is used, only Vulkan and CUDA's driver API.
// C++ wants a function before its use, so `run` comes last.
//
//     first_frame --stage 1   # the UUIDs match
//     first_frame --stage 2   # CUDA wrote, Vulkan read: the CPU waits in between
//     first_frame --stage 3   # without a wait: wrong
//     first_frame --stage 4   # in order: the GPU waits
//     first_frame             # a picture, 100 frames: first_frame.png, or --output FILE

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>
#include <vulkan/vulkan.h>
#include "first_frame_spv.h"

// A structure's members stand in braces up to the last that is needed, or follow by name. The others are zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

const uint64_t FRAMES = 100;
const uint32_t VERTICES = 1024;
struct Vertex { float x, y, zero, frame; }; // The frame's number, by which the check tells frames apart.
const VkDeviceSize BYTES = VERTICES * sizeof(Vertex);
const std::string KERNEL = std::filesystem::path(__FILE__).replace_filename("../first_frame.ptx"); // By hand.
const uint32_t FAMILY = 0; // With NVIDIA's driver, the first queue family can do everything.

// This machine cannot run the program.
struct Skip : std::runtime_error { using std::runtime_error::runtime_error; };

// CUDA's driver is opened when the program runs, so that the program can be built and started where there is none.
#define CUDA_FUNCTIONS(f) \
    f(cuInit) f(cuGetErrorName) f(cuDeviceGetCount) f(cuDeviceGet) f(cuDeviceGetName) f(cuDeviceGetUuid_v2) \
    f(cuDevicePrimaryCtxRetain) f(cuDevicePrimaryCtxRelease_v2) f(cuCtxSetCurrent) f(cuStreamCreate) \
    f(cuStreamSynchronize) f(cuStreamDestroy_v2) f(cuModuleLoadData) f(cuModuleGetFunction) f(cuModuleUnload) \
    f(cuLaunchKernel) f(cuImportExternalMemory) f(cuExternalMemoryGetMappedBuffer) f(cuMemFree_v2) \
    f(cuDestroyExternalMemory) f(cuImportExternalSemaphore) f(cuDestroyExternalSemaphore) \
    f(cuWaitExternalSemaphoresAsync) f(cuSignalExternalSemaphoresAsync)

#define MEMBER(name) decltype(&::name) name;
struct { CUDA_FUNCTIONS(MEMBER) } cuda;

void load_cuda() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) throw Skip("there is no CUDA driver (libcuda): install NVIDIA's");
#define LOAD(name) \
    cuda.name = reinterpret_cast<decltype(cuda.name)>(dlsym(library, #name)); \
    if (!cuda.name) throw Skip("the CUDA driver is older than 11.4: update it (it has no " #name ")");
    CUDA_FUNCTIONS(LOAD)
}

// Calls a function of CUDA, or of Vulkan. The error has its name.
#define CU(call) check(cuda.call, #call)
#define VK(call) check(call, #call)

[[noreturn]] void fail(const std::string &call, const std::string &answer) {
    throw std::runtime_error(call.substr(0, call.find('(')) + " failed: " + answer);
}

void check(CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) return;
    const char *name = nullptr;
    cuda.cuGetErrorName(result, &name);
    fail(call, name ? name : std::to_string(result));
}

void check(VkResult result, const char *call) {
#define NAME(code) if (result == code) fail(call, #code);
    NAME(VK_TIMEOUT) NAME(VK_ERROR_OUT_OF_HOST_MEMORY) NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY) NAME(VK_ERROR_DEVICE_LOST)
    NAME(VK_ERROR_INITIALIZATION_FAILED) NAME(VK_ERROR_INCOMPATIBLE_DRIVER) NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    if (result != VK_SUCCESS) fail(call, "VkResult " + std::to_string(result)); // See vulkan_core.h.
}

void say(const std::string &text) {
    if (std::puts(text.c_str()) < 0 || std::fflush(stdout) != 0) throw std::runtime_error("cannot print");
}

std::string uuid(const void *bytes) {
    char text[33];
    for (int i = 0; i < 16; i++) std::snprintf(text + 2 * i, 3, "%02x", static_cast<const uint8_t *>(bytes)[i]);
    return text;
}

// 1. The same GPU. Each API numbers the GPUs in an order of its own, and names repeat. The UUID is the same in both.
struct Found { VkInstance instance; VkPhysicalDevice physical; CUdevice cuda; };

Found find_gpu() {
    load_cuda();
    const auto oldest = VK_API_VERSION_1_3;
    const VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, nullptr, 0, nullptr, 0, oldest};
    const VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &app};
    Found gpu{};
    try {
        CU(cuInit(0));
        VK(vkCreateInstance(&info, nullptr, &gpu.instance));
    } catch (const std::runtime_error &error) {
        throw Skip(error.what());
    }
    uint32_t devices = 0;
    VK(vkEnumeratePhysicalDevices(gpu.instance, &devices, nullptr));
    std::vector<VkPhysicalDevice> all_physical(devices);
    VK(vkEnumeratePhysicalDevices(gpu.instance, &devices, all_physical.data()));
    std::vector<std::pair<VkPhysicalDevice, std::string>> found;
    for (VkPhysicalDevice physical : all_physical) {
        VkPhysicalDeviceIDProperties id{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
        VkPhysicalDeviceProperties2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &id};
        vkGetPhysicalDeviceProperties2(physical, &all);
        say("Vulkan has " + uuid(id.deviceUUID) + ", \"" + all.properties.deviceName + "\"");
        if (all.properties.apiVersion >= oldest) found.emplace_back(physical, uuid(id.deviceUUID));
    }
    int count = 0;
    CU(cuDeviceGetCount(&count));
    for (int ordinal = 0; ordinal < count; ordinal++) {
        char name[256] = "";
        CUuuid id{};
        CU(cuDeviceGet(&gpu.cuda, ordinal));
        CU(cuDeviceGetName(name, sizeof name, gpu.cuda));
        CU(cuDeviceGetUuid_v2(&id, gpu.cuda));
        say("CUDA has   " + uuid(&id) + ", \"" + name + "\"");
        for (const auto &[physical, other] : found) {
            if (other != uuid(&id)) continue;
            gpu.physical = physical;
            return gpu;
        }
    }
    throw Skip("no GPU with Vulkan 1.3 is a CUDA device too");
}

// 2. A device of each API, on this GPU.
struct Gpu {
    VkInstance instance;
    VkDevice device;
    VkPhysicalDeviceMemoryProperties memory;
    VkCommandPool pool;
    CUdevice cuda;
    CUstream stream;
    CUmodule module;
    CUfunction kernel;
};

Gpu open() {
    const Found found = find_gpu();
    Gpu gpu{};
    gpu.instance = found.instance;
    gpu.cuda = found.cuda;
    const char *names[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME};
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, FAMILY, 1, &priority};
    VkPhysicalDeviceVulkan12Features newer{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    newer.timelineSemaphore = VK_TRUE;
    VkPhysicalDeviceVulkan13Features newest{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, &newer};
    newest.synchronization2 = VK_TRUE;
    newest.dynamicRendering = VK_TRUE; // Only for the picture.
    const VkDeviceCreateInfo info{
        VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &newest, 0, 1, &queue, 0, nullptr, std::size(names), names};
    VK(vkCreateDevice(found.physical, &info, nullptr, &gpu.device));
    vkGetPhysicalDeviceMemoryProperties(found.physical, &gpu.memory);
    const VkCommandPoolCreateInfo commands{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, FAMILY};
    VK(vkCreateCommandPool(gpu.device, &commands, nullptr, &gpu.pool));
    std::ifstream file(KERNEL);
    const std::string ptx{std::istreambuf_iterator<char>(file), {}};
    if (ptx.empty()) throw std::runtime_error("cannot read " + KERNEL + ": compile the program where this file is");
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, gpu.cuda));
    CU(cuCtxSetCurrent(context)); // For this thread only.
    CU(cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&gpu.module, ptx.c_str()));
    CU(cuModuleGetFunction(&gpu.kernel, gpu.module, "first_wave"));
    return gpu;
}

// The size of an allocation, and the first memory type that suits.
VkMemoryAllocateInfo memory(const Gpu &gpu, const VkMemoryRequirements &need, VkMemoryPropertyFlags kind, const void *next) {
    for (uint32_t i = 0; i < gpu.memory.memoryTypeCount; i++) {
        const bool suits = (gpu.memory.memoryTypes[i].propertyFlags & kind) == kind;
        if (need.memoryTypeBits >> i & 1 && suits) return {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, next, need.size, i};
    }
    throw std::runtime_error("the GPU has no memory of VkMemoryPropertyFlags " + std::to_string(kind));
}

// 3. One memory with two names: Vulkan allocates and exports, CUDA imports and maps.
struct Field { VkBuffer buffer; VkDeviceMemory memory; CUexternalMemory imported; CUdeviceptr pointer; };

Field share_memory(const Gpu &gpu) {
    Field field{};
    // Both the buffer and its memory must say that they will be exported.
    const auto fd = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    const VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr, fd};
    const auto usage = VK_BUFFER_USAGE_VERTEX_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT;
    const VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, &external, 0, BYTES, usage};
    VK(vkCreateBuffer(gpu.device, &info, nullptr, &field.buffer));
    VkMemoryRequirements required;
    vkGetBufferMemoryRequirements(gpu.device, field.buffer, &required);
    const VkExportMemoryAllocateInfo exported{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, nullptr, fd};
    const VkMemoryDedicatedAllocateInfo dedicated{
        VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, &exported, VK_NULL_HANDLE, field.buffer};
    const VkMemoryAllocateInfo size = memory(gpu, required, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &dedicated);
    VK(vkAllocateMemory(gpu.device, &size, nullptr, &field.memory));
    VK(vkBindBufferMemory(gpu.device, field.buffer, field.memory, 0));

    // The descriptor carries the memory over. After a successful import it is CUDA's: do not close it.
    const VkMemoryGetFdInfoKHR get{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, nullptr, field.memory, fd};
    const auto vkGetMemoryFdKHR = // An extension's function, which Vulkan's loader does not export.
        reinterpret_cast<PFN_vkGetMemoryFdKHR>(vkGetDeviceProcAddr(gpu.device, "vkGetMemoryFdKHR"));
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC whole{};
    whole.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    VK(vkGetMemoryFdKHR(gpu.device, &get, &whole.handle.fd));
    // The allocation may be larger than the buffer. CUDA imports the one and maps the other.
    whole.size = required.size;
    whole.flags = CUDA_EXTERNAL_MEMORY_DEDICATED;
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{0, BYTES, 0, {}};
    CU(cuImportExternalMemory(&field.imported, &whole));
    CU(cuExternalMemoryGetMappedBuffer(&field.pointer, field.imported, &part));
    return field;
}

// 4. Two timelines. CUDA signals `ready` when it has written a frame, and Vulkan signals `free` when it has read it. Both signal
// the frame's number. A timeline starts at 0 and must grow, so frames are counted from 1.
struct Timeline { VkSemaphore vulkan; CUexternalSemaphore cuda; };

Timeline share_timeline(const Gpu &gpu) {
    Timeline timeline{};
    const auto fd = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    const VkExportSemaphoreCreateInfo exported{VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO, nullptr, fd};
    const VkSemaphoreTypeCreateInfo kind{
        VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, &exported, VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &kind};
    VK(vkCreateSemaphore(gpu.device, &info, nullptr, &timeline.vulkan));
    const VkSemaphoreGetFdInfoKHR get{VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR, nullptr, timeline.vulkan, fd};
    const auto vkGetSemaphoreFdKHR =
        reinterpret_cast<PFN_vkGetSemaphoreFdKHR>(vkGetDeviceProcAddr(gpu.device, "vkGetSemaphoreFdKHR"));
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
    desc.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    VK(vkGetSemaphoreFdKHR(gpu.device, &get, &desc.handle.fd));
    CU(cuImportExternalSemaphore(&timeline.cuda, &desc)); // The descriptor is CUDA's from now on.
    return timeline;
}

// 5. CUDA's half of a frame: the call only enqueues the kernel. The kernel writes half a millisecond late, as a larger one would.
//     __global__ void first_wave(float4 *out, unsigned count, unsigned frame, unsigned long long late) {
//         for (unsigned long long start = clock64(); clock64() - start < late;) {}
//         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//         float t = 2.0f * i / count;
//         float y = 0.7f * __sinf(6.2831853f * (t - 0.0125f * frame));
//         if (i < count) out[i] = make_float4(t - 1.0f, y, 0.0f, frame);
//     }
void launch(const Gpu &gpu, const Field &field, uint64_t frame) {
    CUdeviceptr out = field.pointer;
    unsigned count = VERTICES, number = static_cast<unsigned>(frame);
    unsigned long long late = 1000000;
    void *all[] = {&out, &count, &number, &late};
    CU(cuLaunchKernel(gpu.kernel, count / 256, 1, 1, 256, 1, 1, 0, gpu.stream, all, nullptr));
}

// 6. Vulkan's half: it takes the buffer over from CUDA, uses it, and gives it back. CUDA has no call for its part of this.
void submit(const Gpu &gpu, const Field &field, VkSubmitInfo2 batch, const std::function<void(VkCommandBuffer)> &work) {
    const VkCommandBufferAllocateInfo info{
        VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, gpu.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer commands;
    VK(vkAllocateCommandBuffers(gpu.device, &info, &commands));
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VK(vkBeginCommandBuffer(commands, &begin));
    // Stages 2 to 4 copy the buffer, stage 5 draws it.
    const auto stage = VK_PIPELINE_STAGE_2_COPY_BIT | VK_PIPELINE_STAGE_2_VERTEX_ATTRIBUTE_INPUT_BIT;
    const auto access = VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_VERTEX_ATTRIBUTE_READ_BIT;
    const VkBufferMemoryBarrier2 acquire{
        VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2, nullptr, stage, access, stage, access,
        VK_QUEUE_FAMILY_EXTERNAL, FAMILY, field.buffer, 0, VK_WHOLE_SIZE};
    const VkBufferMemoryBarrier2 release{
        VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2, nullptr, stage, access, stage, access,
        FAMILY, VK_QUEUE_FAMILY_EXTERNAL, field.buffer, 0, VK_WHOLE_SIZE};
    const VkDependencyInfo before{VK_STRUCTURE_TYPE_DEPENDENCY_INFO, nullptr, 0, 0, nullptr, 1, &acquire};
    vkCmdPipelineBarrier2(commands, &before);
    work(commands);
    const VkMemoryBarrier2 copy{
        VK_STRUCTURE_TYPE_MEMORY_BARRIER_2, nullptr, VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
        VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT};
    const VkDependencyInfo after{VK_STRUCTURE_TYPE_DEPENDENCY_INFO, nullptr, 0, 1, &copy, 1, &release};
    vkCmdPipelineBarrier2(commands, &after);
    VK(vkEndCommandBuffer(commands));
    const VkCommandBufferSubmitInfo recorded{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, commands};
    batch.commandBufferInfoCount = 1;
    batch.pCommandBufferInfos = &recorded;
    VkQueue queue;
    vkGetDeviceQueue(gpu.device, FAMILY, 0, &queue);
    VK(vkQueueSubmit2(queue, 1, &batch, VK_NULL_HANDLE));
}

// 7. The frames. The stages differ only in who waits: the CPU in stage 2, nobody in stage 3, the GPU in stages 4 and 5.
using Work = std::function<void(VkCommandBuffer commands, VkBuffer buffer, uint64_t frame)>;

void enqueue(const Gpu &gpu, int stage, uint64_t last, const Work &work) {
    const Field field = share_memory(gpu);
    const Timeline ready = share_timeline(gpu), free = share_timeline(gpu);
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
    const auto type = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    const auto all = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT; // Less does not order the ownership.
    for (uint64_t frame = 1; frame <= last; frame++) {
        if (stage >= 4 && frame > 1) {
            wait.params.fence.value = frame - 1; // Vulkan has read the frame before.
            CU(cuWaitExternalSemaphoresAsync(&free.cuda, &wait, 1, gpu.stream));
        }
        launch(gpu, field, frame);
        signal.params.fence.value = frame; // CUDA has written this frame.
        CU(cuSignalExternalSemaphoresAsync(&ready.cuda, &signal, 1, gpu.stream));
        if (stage == 2) CU(cuStreamSynchronize(gpu.stream));
        const VkSemaphoreSubmitInfo written{type, nullptr, ready.vulkan, frame, all};
        const VkSemaphoreSubmitInfo read{type, nullptr, free.vulkan, frame, all};
        VkSubmitInfo2 batch{VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
        batch.waitSemaphoreInfoCount = stage >= 4 ? 1 : 0;
        batch.pWaitSemaphoreInfos = &written;
        batch.signalSemaphoreInfoCount = 1;
        batch.pSignalSemaphoreInfos = &read;
        submit(gpu, field, batch, [&](VkCommandBuffer commands) { work(commands, field.buffer, frame); });
    }
    // At the end the CPU waits, up to 10 seconds for each frame. Not for ever: after a fault, CUDA signals nothing more.
    for (uint64_t frame = 1; frame <= last; ++frame) {
        const VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &free.vulkan, &frame};
        VK(vkWaitSemaphores(gpu.device, &info, 10000000000));
    }
    CU(cuStreamSynchronize(gpu.stream));
    // First CUDA lets go, of the mapping before the import. Then Vulkan.
    for (const Timeline &timeline : {ready, free}) {
        CU(cuDestroyExternalSemaphore(timeline.cuda));
        vkDestroySemaphore(gpu.device, timeline.vulkan, nullptr);
    }
    CU(cuMemFree_v2(field.pointer));
    CU(cuDestroyExternalMemory(field.imported));
    vkDestroyBuffer(gpu.device, field.buffer, nullptr);
    vkFreeMemory(gpu.device, field.memory, nullptr);
}

// 8. The check. Stages 2 to 4 copy the vertices of each frame, and the CPU looks at them all at the end.
// In stage 3 nothing holds the copies back. The CPU has soon enqueued all of them, but the 100 kernels take 50 milliseconds. So
// most copies find an older frame. The GPU may switch between CUDA and Vulkan, but not frame by frame.
bool is_right(const Vertex *seen, uint64_t frame) {
    for (uint32_t i = 0; i < VERTICES; i++) {
        const float t = 2.0f * i / VERTICES;
        const float want = 0.7f * std::sin(6.2831853f * (t - 0.0125f * frame));
        const auto [x, y, zero, number] = seen[i];
        if (!(x == t - 1 && std::abs(y - want) < 1e-3f && zero == 0 && number == frame)) return false;
    }
    return true;
}

// What Vulkan copies for the CPU, and where the CPU sees it.
struct Host { VkBuffer buffer; VkDeviceMemory memory; void *seen; };

void check_frames(const Gpu &gpu, const Host &host, int stage) {
    const uint64_t frames = stage == 2 ? 1 : FRAMES;
    enqueue(gpu, stage, frames, [&](VkCommandBuffer commands, VkBuffer buffer, uint64_t frame) {
        const VkBufferCopy copy{0, (frame - 1) * BYTES, BYTES};
        vkCmdCopyBuffer(commands, buffer, host.buffer, 1, &copy);
    });
    const auto seen = static_cast<const Vertex *>(host.seen);
    uint64_t wrong = 0, torn = 0;
    for (uint64_t frame = 1; frame <= frames; frame++) {
        const Vertex *first = seen + (frame - 1) * VERTICES;
        wrong += !is_right(first, frame);
        torn += std::any_of(first, first + VERTICES, [&](const Vertex &vertex) { return vertex.frame != first->frame; });
    }
    const char *who[] = {"CUDA wrote, Vulkan read", "without a wait", "in order"};
    say("stage " + std::to_string(stage) + ", " + who[stage - 2] + ": " + std::to_string(wrong) + " of " +
        std::to_string(frames) + " frames are wrong (" + std::to_string(torn) + " torn)");
    if ((stage == 3) != (wrong > 0)) {
        throw std::runtime_error("stages 2 and 4 must have no wrong frame, and stage 3 some: run it again");
    }
}

Host host_buffer(const Gpu &gpu) {
    Host host{};
    const auto usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    const VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, nullptr, 0, FRAMES * BYTES, usage};
    VK(vkCreateBuffer(gpu.device, &info, nullptr, &host.buffer));
    VkMemoryRequirements required;
    vkGetBufferMemoryRequirements(gpu.device, host.buffer, &required);
    const auto kind = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryAllocateInfo size = memory(gpu, required, kind, nullptr);
    VK(vkAllocateMemory(gpu.device, &size, nullptr, &host.memory));
    VK(vkBindBufferMemory(gpu.device, host.buffer, host.memory, 0));
    VK(vkMapMemory(gpu.device, host.memory, 0, VK_WHOLE_SIZE, 0, &host.seen));
    return host;
}

// 9. The picture of stage 5. This is Vulkan alone: an image, a draw, a copy, a pipeline (with shaders/first_frame.wgsl).
const VkExtent3D SIZE{640, 360, 1};
const VkRect2D AREA{{0, 0}, {SIZE.width, SIZE.height}};
const VkFormat FORMAT = VK_FORMAT_R8G8B8A8_UNORM;

std::pair<VkPipeline, VkPipelineLayout> make_pipeline(VkDevice device) {
    VkShaderModule vertex, fragment;
    VkShaderModuleCreateInfo code{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, sizeof vertex_main, vertex_main};
    VK(vkCreateShaderModule(device, &code, nullptr, &vertex));
    code.codeSize = sizeof fragment_main;
    code.pCode = fragment_main;
    VK(vkCreateShaderModule(device, &code, nullptr, &fragment));
    const auto stage = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    const VkPipelineShaderStageCreateInfo stages[] = {
        {stage, nullptr, 0, VK_SHADER_STAGE_VERTEX_BIT, vertex, "vertex_main"},
        {stage, nullptr, 0, VK_SHADER_STAGE_FRAGMENT_BIT, fragment, "fragment_main"},
    };
    const VkVertexInputBindingDescription binding{0, sizeof(Vertex), VK_VERTEX_INPUT_RATE_VERTEX};
    const VkVertexInputAttributeDescription place{0, 0, VK_FORMAT_R32G32_SFLOAT, 0};
    const VkPipelineVertexInputStateCreateInfo input{
        VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO, nullptr, 0, 1, &binding, 1, &place};
    const VkPipelineInputAssemblyStateCreateInfo strip{
        VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO, nullptr, 0, VK_PRIMITIVE_TOPOLOGY_LINE_STRIP};
    const VkViewport whole{0, 0, static_cast<float>(SIZE.width), static_cast<float>(SIZE.height), 0, 1};
    const VkPipelineViewportStateCreateInfo view{
        VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO, nullptr, 0, 1, &whole, 1, &AREA};
    VkPipelineRasterizationStateCreateInfo raster{VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO};
    raster.lineWidth = 1;
    const VkPipelineMultisampleStateCreateInfo samples{
        VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO, nullptr, 0, VK_SAMPLE_COUNT_1_BIT};
    VkPipelineColorBlendAttachmentState target{};
    target.colorWriteMask = 0xf; // Red, green, blue and alpha.
    const VkPipelineColorBlendStateCreateInfo blend{
        VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO, nullptr, 0, VK_FALSE, VK_LOGIC_OP_COPY, 1, &target};
    const VkPipelineRenderingCreateInfo formats{VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO, nullptr, 0, 1, &FORMAT};
    const VkPipelineLayoutCreateInfo empty{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    VkPipelineLayout layout;
    VK(vkCreatePipelineLayout(device, &empty, nullptr, &layout));
    const VkGraphicsPipelineCreateInfo info{
        VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO, &formats, 0, std::size(stages), stages, &input, &strip,
        nullptr, &view, &raster, &samples, nullptr, &blend, nullptr, layout};
    VkPipeline pipeline;
    VK(vkCreateGraphicsPipelines(device, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline));
    vkDestroyShaderModule(device, vertex, nullptr);
    vkDestroyShaderModule(device, fragment, nullptr);
    return {pipeline, layout};
}

// An RGBA picture as a PNG file, not compressed: each row is a stored block of zlib's format.
void write_png(const std::string &output, const uint8_t *pixels) {
    std::string png = "\x89PNG\r\n\x1a\n";
    const auto number = [](uint32_t n) { return std::string{char(n >> 24), char(n >> 16), char(n >> 8), char(n)}; };
    const auto chunk = [&](std::string bytes) { // The chunk's name and its contents.
        uint32_t crc = ~0u;
        for (const char byte : bytes) {
            crc ^= static_cast<uint8_t>(byte);
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
        }
        png += number(static_cast<uint32_t>(bytes.size()) - 4) + bytes + number(~crc);
    };
    std::string data = "IDAT\x78\x01";
    uint32_t a = 1, b = 0; // Adler-32.
    for (uint32_t row = 0; row < SIZE.height; row++) {
        std::string bytes(1, 0); // No filter.
        bytes.append(reinterpret_cast<const char *>(pixels + row * SIZE.width * 4), SIZE.width * 4);
        const uint32_t length = static_cast<uint32_t>(bytes.size());
        data += {char(row + 1 == SIZE.height), char(length), char(length >> 8), char(~length), char(~length >> 8)};
        data += bytes;
        for (const char byte : bytes) a = (a + static_cast<uint8_t>(byte)) % 65521, b = (b + a) % 65521;
    }
    chunk("IHDR" + number(SIZE.width) + number(SIZE.height) + std::string{8, 6, 0, 0, 0}); // 8 bits, RGBA.
    chunk(data + number(b << 16 | a));
    chunk("IEND");
    std::ofstream file(output, std::ios::binary);
    file << png << std::flush;
    if (!file) throw std::runtime_error("cannot write " + output + ": " + std::strerror(errno));
}

void draw_frames(const Gpu &gpu, const Host &host, const std::string &output) {
    const auto usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT;
    const VkImageCreateInfo info{
        VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO, nullptr, 0, VK_IMAGE_TYPE_2D, FORMAT, SIZE, 1, 1,
        VK_SAMPLE_COUNT_1_BIT, VK_IMAGE_TILING_OPTIMAL, usage};
    VkImage image;
    VK(vkCreateImage(gpu.device, &info, nullptr, &image));
    VkMemoryRequirements required;
    vkGetImageMemoryRequirements(gpu.device, image, &required);
    const VkMemoryAllocateInfo size = memory(gpu, required, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, nullptr);
    VkDeviceMemory memory;
    VK(vkAllocateMemory(gpu.device, &size, nullptr, &memory));
    VK(vkBindImageMemory(gpu.device, image, memory, 0));
    const VkImageSubresourceRange all{VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    const VkImageViewCreateInfo look{
        VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO, nullptr, 0, image, VK_IMAGE_VIEW_TYPE_2D, FORMAT, {}, all};
    VkImageView view;
    VK(vkCreateImageView(gpu.device, &look, nullptr, &view));
    const auto pipeline = make_pipeline(gpu.device);
    const auto general = VK_IMAGE_LAYOUT_GENERAL;
    const auto barrier = [&](VkCommandBuffer commands, VkImageLayout from) {
        const auto stage = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
        const auto access = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT;
        const VkImageMemoryBarrier2 barrier{
            VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2, nullptr, stage, access, stage, access, from, general, 0, 0, image, all};
        const VkDependencyInfo info{VK_STRUCTURE_TYPE_DEPENDENCY_INFO, nullptr, 0, 0, nullptr, 0, nullptr, 1, &barrier};
        vkCmdPipelineBarrier2(commands, &info);
    };
    enqueue(gpu, 5, FRAMES, [&](VkCommandBuffer commands, VkBuffer vertices, uint64_t frame) {
        barrier(commands, VK_IMAGE_LAYOUT_UNDEFINED);
        VkRenderingAttachmentInfo target{VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO, nullptr, view, general};
        target.loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR;
        target.clearValue = {{{0.05f, 0.06f, 0.1f, 1}}};
        const VkRenderingInfo info{VK_STRUCTURE_TYPE_RENDERING_INFO, nullptr, 0, AREA, 1, 0, 1, &target};
        vkCmdBeginRendering(commands, &info);
        vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline.first);
        const VkDeviceSize offset = 0;
        vkCmdBindVertexBuffers(commands, 0, 1, &vertices, &offset);
        vkCmdDraw(commands, VERTICES, 64, 0, 0); // 64 times: see the shader.
        vkCmdEndRendering(commands);
        if (frame == FRAMES) {
            barrier(commands, general);
            const VkBufferImageCopy copy{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, SIZE};
            vkCmdCopyImageToBuffer(commands, image, general, host.buffer, 1, &copy);
        }
    });
    write_png(output, static_cast<const uint8_t *>(host.seen));
    vkDestroyPipeline(gpu.device, pipeline.first, nullptr);
    vkDestroyPipelineLayout(gpu.device, pipeline.second, nullptr);
    vkDestroyImageView(gpu.device, view, nullptr);
    vkDestroyImage(gpu.device, image, nullptr);
    vkFreeMemory(gpu.device, memory, nullptr);
    say("stage 5, a picture, " + std::to_string(FRAMES) + " frames: " + output);
}

// The program. An error ends the process, and then the drivers free everything.
void run(int stage, const std::string &output) {
    const Gpu gpu = open();
    const Host host = host_buffer(gpu);
    if (stage == 1) say("stage 1: the UUIDs match");
    else if (stage <= 4) check_frames(gpu, host, stage);
    else draw_frames(gpu, host, output);
    CU(cuModuleUnload(gpu.module));
    CU(cuStreamDestroy_v2(gpu.stream));
    CU(cuDevicePrimaryCtxRelease_v2(gpu.cuda));
    vkDestroyBuffer(gpu.device, host.buffer, nullptr);
    vkFreeMemory(gpu.device, host.memory, nullptr);
    vkDestroyCommandPool(gpu.device, gpu.pool, nullptr);
    vkDestroyDevice(gpu.device, nullptr);
    vkDestroyInstance(gpu.instance, nullptr);
}

// 10. What is left: options and errors.
int main(int count, char **arguments) {
    int stage = 5;
    std::string output = "first_frame.png";
    for (int i = 1; i < count; i += 2) {
        const std::string name = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
        if (name == "--stage" && value.size() == 1) stage = value[0] - '0';
        else if (name == "--output" && !value.empty()) output = value;
        else stage = 0;
    }
    if (stage < 1 || stage > 5) {
        std::fputs("usage: first_frame [--stage 1 to 5] [--output FILE]\n", stderr);
        return 2;
    }
    try {
        run(stage, output);
        return 0;
    } catch (const Skip &reason) {
        std::fprintf(stderr, "skipped: %s\n", reason.what());
        const char *required = std::getenv("WAVEFIELD_REQUIRE_GPU");
        return required && std::string(required) == "1";
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
