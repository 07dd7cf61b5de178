// cuSignalExternalSemaphoresAsync overtakes small memsets of its own stream: Vulkan waits for the signal and reads old bytes.
//     g++ -O2 overtake.cpp -lcuda -lvulkan -o overtake && ./overtake        ("./overtake all" tries every case, in 90 seconds)
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <vector>
#include <cuda.h>
#include <vulkan/vulkan.h>

#define CU(call) do { CUresult r_ = call; if (r_) { printf("%s: CUDA error %d\n", #call, int(r_)); exit(1); } } while (0)
#define VK(call) do { VkResult r_ = call; if (r_) { printf("%s: Vulkan error %d\n", #call, int(r_)); exit(1); } } while (0)
#define LOAD(name) auto name = reinterpret_cast<PFN_##name>(vkGetDeviceProcAddr(device, #name))

const char *PTX = R"(.version 5.0
.target sm_50
.address_size 64
.visible .entry empty() { ret; }
.visible .entry fill(.param .u64 p, .param .u32 n, .param .u32 v) {        // p[i] = v, for i < n
  .reg .pred %q; .reg .u32 %r<6>; .reg .u64 %a<3>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [n]; ld.param.u32 %r5, [v]; ld.param.u64 %a1, [p];
  setp.ge.u32 %q, %r1, %r4; @%q ret;
  mul.wide.u32 %a2, %r1, 4; add.u64 %a1, %a1, %a2; st.global.u32 [%a1], %r5; ret; }
.visible .entry spin(.param .u64 ns) {                                     // each block runs for ns nanoseconds
  .reg .pred %q; .reg .u64 %a<4>;
  ld.param.u64 %a1, [ns]; mov.u64 %a2, %globaltimer; add.u64 %a1, %a1, %a2;
again: mov.u64 %a3, %globaltimer; setp.lt.u64 %q, %a3, %a1; @%q bra again; ret; })";

const uint32_t FRAMES = 400, KIB = 1024, LARGEST = 1024 * KIB;
const char *WRITES[] = {"memset", "host copy", "device copy", "kernel"};
const char *GUARDS[] = {"nothing", "write value", "empty kernel"};
const char *OTHERS[] = {"idle", "2000 memsets", "kernel, 1 block", "kernel, all blocks"};
struct Case { int write; uint32_t bytes; };
const Case CASES[] = {{0, KIB}, {0, 4 * KIB}, {0, 64 * KIB}, {0, 256 * KIB}, {0, LARGEST}, {1, 4 * KIB}, {1, 64 * KIB}, {2, 16}, {2, 4 * KIB}, {3, 4 * KIB}};

static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char **argv) {
    bool all = argc > 1 && !strcmp(argv[1], "all");
    // CUDA: two streams, three kernels, a word for the guard, and what the device copies copy: a page of each frame's number.
    CUdevice gpu; CUcontext context; CUstream stream, other; CUuuid uuid; CUmodule module; CUfunction empty, fill, spin; CUdeviceptr word, scratch, pages;
    int processors, cudaVersion; char name[256];
    CU(cuInit(0)); CU(cuDeviceGet(&gpu, 0)); CU(cuDeviceGetUuid_v2(&uuid, gpu)); CU(cuDeviceGetName(name, sizeof name, gpu));
    CU(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu)); CU(cuDriverGetVersion(&cudaVersion));
    CU(cuDevicePrimaryCtxRetain(&context, gpu)); CU(cuCtxSetCurrent(context));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&module, PTX)); CU(cuModuleGetFunction(&empty, module, "empty"));
    CU(cuModuleGetFunction(&fill, module, "fill")); CU(cuModuleGetFunction(&spin, module, "spin"));
    CU(cuMemAlloc(&word, 4)); CU(cuMemAlloc(&scratch, 4 * KIB)); CU(cuMemAlloc(&pages, (FRAMES + 1) * 4 * KIB));
    std::vector<uint32_t> host(LARGEST / 4);
    for (uint32_t frame = 0; frame <= FRAMES; frame++) CU(cuMemsetD32(pages + frame * 4 * KIB, frame, KIB));
    CU(cuCtxSynchronize());

    // Vulkan: the device of the same UUID, one queue, one command buffer.
    VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO}; app.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo ici{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO}; ici.pApplicationInfo = &app;
    VkInstance instance; VK(vkCreateInstance(&ici, nullptr, &instance));
    uint32_t count = 16; VkPhysicalDevice list[16], physical{}; VK(vkEnumeratePhysicalDevices(instance, &count, list));
    VkPhysicalDeviceIDProperties id{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES}; VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &id};
    while (count-- && !physical) { vkGetPhysicalDeviceProperties2(list[count], &properties); if (!memcmp(id.deviceUUID, uuid.bytes, 16)) physical = list[count]; }
    if (!physical) { printf("no Vulkan device has the UUID of CUDA's device 0\n"); return 1; }
    uint32_t driver = properties.properties.driverVersion;
    printf("%s, driver %u.%u.%02u, CUDA %d.%d\n", name, driver >> 22, driver >> 14 & 255, driver >> 6 & 255, cudaVersion / 1000, cudaVersion % 1000 / 10);
    float priority = 1; VkDeviceQueueCreateInfo qci{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO}; qci.queueCount = 1; qci.pQueuePriorities = &priority;
    const char *extensions[] = {"VK_KHR_external_memory_fd", "VK_KHR_external_semaphore_fd"};
    VkPhysicalDeviceTimelineSemaphoreFeatures features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES}; features.timelineSemaphore = true;
    VkDeviceCreateInfo dci{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features}; dci.queueCreateInfoCount = 1; dci.pQueueCreateInfos = &qci;
    dci.enabledExtensionCount = 2; dci.ppEnabledExtensionNames = extensions;
    VkDevice device; VK(vkCreateDevice(physical, &dci, nullptr, &device)); VkQueue queue; vkGetDeviceQueue(device, 0, 0, &queue);
    LOAD(vkGetMemoryFdKHR); LOAD(vkGetSemaphoreFdKHR);
    VkCommandPoolCreateInfo pci{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO}; pci.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    VkCommandPool pool; VK(vkCreateCommandPool(device, &pci, nullptr, &pool));
    VkCommandBufferAllocateInfo cai{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer commands; VK(vkAllocateCommandBuffers(device, &cai, &commands));

    // The buffer that CUDA writes (exported), and the one that the CPU reads.
    VkPhysicalDeviceMemoryProperties kinds; vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
    VkBuffer buffers[2]; VkDeviceMemory memories[2]; uint64_t sharedSize = 0;
    for (int i = 0; i < 2; i++) {
        VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr, VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
        VkBufferCreateInfo bci{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, i ? nullptr : &external}; bci.size = LARGEST;
        bci.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT; VK(vkCreateBuffer(device, &bci, nullptr, &buffers[i]));
        VkMemoryRequirements need; vkGetBufferMemoryRequirements(device, buffers[i], &need); if (!i) sharedSize = need.size;
        VkMemoryPropertyFlags want = i ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
        uint32_t kind = 0; while (!(need.memoryTypeBits >> kind & 1) || (kinds.memoryTypes[kind].propertyFlags & want) != want) kind++;
        VkMemoryDedicatedAllocateInfo dedicated{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, nullptr, VK_NULL_HANDLE, buffers[i]};
        VkExportMemoryAllocateInfo exported{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, &dedicated, VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
        VkMemoryAllocateInfo mai{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, i ? nullptr : &exported, need.size, kind};
        VK(vkAllocateMemory(device, &mai, nullptr, &memories[i])); VK(vkBindBufferMemory(device, buffers[i], memories[i], 0));
    }
    const uint32_t *read; VK(vkMapMemory(device, memories[1], 0, VK_WHOLE_SIZE, 0, (void **)&read));
    VkMemoryGetFdInfoKHR gmi{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, nullptr, memories[0], VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC md{}; md.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD; md.size = sharedSize; md.flags = CUDA_EXTERNAL_MEMORY_DEDICATED;
    VK(vkGetMemoryFdKHR(device, &gmi, &md.handle.fd));
    CUexternalMemory memory; CU(cuImportExternalMemory(&memory, &md)); CUDA_EXTERNAL_MEMORY_BUFFER_DESC bd{}; bd.size = LARGEST;
    CUdeviceptr shared; CU(cuExternalMemoryGetMappedBuffer(&shared, memory, &bd));

    // Two timelines: CUDA signals `ready` (exported), Vulkan signals `done`, which the CPU waits for.
    VkSemaphore ready, done; CUexternalSemaphore cudaReady;
    for (VkSemaphore *semaphore : {&ready, &done}) {
        VkExportSemaphoreCreateInfo esi{VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO, nullptr, VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
        VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, &esi, VK_SEMAPHORE_TYPE_TIMELINE, 0};
        VkSemaphoreCreateInfo sci{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type}; VK(vkCreateSemaphore(device, &sci, nullptr, semaphore));
    }
    VkSemaphoreGetFdInfoKHR gsi{VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR, nullptr, ready, VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC sd{}; sd.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    VK(vkGetSemaphoreFdKHR(device, &gsi, &sd.handle.fd)); CU(cuImportExternalSemaphore(&cudaReady, &sd));

    uint64_t value = 0;
    printf("%-20s %-24s %-12s %8s  %12s  %10s  %16s\n", "other stream", "before the signal", "write", "bytes", "wrong frames", "us a frame", "us other stream");
    for (int busy = 0; busy < 4; busy++) for (Case c : CASES) for (int guard = 0; guard < 3; guard++) {
        if (!all && (busy != 1 || c.write || c.bytes != 4 * KIB)) continue;
        uint32_t words = c.bytes / 4, wrong = 0; double mine = 0, others = 0;
        VkBufferCopy region{0, 0, c.bytes}; VkCommandBufferBeginInfo cbi{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}; VK(vkBeginCommandBuffer(commands, &cbi));
        VkBufferMemoryBarrier take{VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER, nullptr, 0, VK_ACCESS_TRANSFER_READ_BIT, VK_QUEUE_FAMILY_EXTERNAL, 0, buffers[0], 0, VK_WHOLE_SIZE};
        VkBufferMemoryBarrier give{VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER, nullptr, VK_ACCESS_TRANSFER_READ_BIT, 0, 0, VK_QUEUE_FAMILY_EXTERNAL, buffers[0], 0, VK_WHOLE_SIZE};
        VkMemoryBarrier toHost{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT};
        vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, nullptr, 1, &take, 0, nullptr);
        vkCmdCopyBuffer(commands, buffers[0], buffers[1], 1, &region);
        vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1, &toHost, 1, &give, 0, nullptr);
        VK(vkEndCommandBuffer(commands));
        for (uint32_t frame = 1; frame <= FRAMES; frame++) {
            uint64_t ns = busy == 2 ? 1000000 : 100000; void *spinning[] = {&ns}, *filling[] = {&shared, &words, &frame};
            if (busy == 1) for (int i = 0; i < 2000; i++) CU(cuMemsetD32Async(scratch, i, KIB, other));
            if (busy == 2) CU(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, other, spinning, nullptr));
            if (busy == 3) CU(cuLaunchKernel(spin, processors * 20, 1, 1, 1024, 1, 1, 0, other, spinning, nullptr));
            if (c.write == 1) for (uint32_t i = 0; i < words; i++) host[i] = frame;
            double begin = now();
            if (c.write == 0) CU(cuMemsetD32Async(shared, frame, words, stream));
            if (c.write == 1) CU(cuMemcpyHtoDAsync(shared, host.data(), c.bytes, stream));
            if (c.write == 2) CU(cuMemcpyDtoDAsync(shared, pages + frame * 4 * KIB, c.bytes, stream));
            if (c.write == 3) CU(cuLaunchKernel(fill, words / 256, 1, 1, 256, 1, 1, 0, stream, filling, nullptr));
            if (guard == 1) CU(cuStreamWriteValue32(stream, word, frame, CU_STREAM_WRITE_VALUE_DEFAULT));
            if (guard == 2) CU(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
            value++; CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{}; signal.params.fence.value = value;
            CU(cuSignalExternalSemaphoresAsync(&cudaReady, &signal, 1, stream));
            VkTimelineSemaphoreSubmitInfo values{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, nullptr, 1, &value, 1, &value}; VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
            VkSubmitInfo submit{VK_STRUCTURE_TYPE_SUBMIT_INFO, &values, 1, &ready, &stage, 1, &commands, 1, &done}; VK(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE));
            VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &done, &value}; VK(vkWaitSemaphores(device, &wait, 5000000000));
            mine += now() - begin; CU(cuStreamSynchronize(other)); others += now() - begin;
            for (uint32_t i = 0; i < words; i++) if (read[i] != frame) { wrong++; break; }
            CU(cuStreamSynchronize(stream));
        }
        printf("%-20s %-24s %-12s %8u  %5u of %u  %10.0f  %16.0f\n", OTHERS[busy], GUARDS[guard], WRITES[c.write], c.bytes, wrong, FRAMES, mine / FRAMES, others / FRAMES); fflush(stdout);
    }
}
