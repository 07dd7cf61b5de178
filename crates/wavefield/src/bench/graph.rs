//! CUDA's half of a ping-pong as a CUDA graph. The benchmark measures whether one launch of a graph costs the CPU less than
//! separate calls.
//!
//! CUDA 12's manual: "Graph Management", `cuGraphAddExternalSemaphoresWaitNode` and its neighbours.

use std::ffi::c_void;

use cudarc::driver::sys;
use vulkan_cuda::SharedTimeline;
use vulkan_cuda::handle::Operand;

use crate::Result;
use crate::cuda::{Cuda, Kernel, Stream, api, require};

/// The calls that only this needs.
const SYMBOLS: [&str; 11] = [
    "cuGraphCreate",
    "cuGraphAddKernelNode",
    "cuGraphAddExternalSemaphoresSignalNode",
    "cuGraphAddExternalSemaphoresWaitNode",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphExecExternalSemaphoresSignalNodeSetParams",
    "cuGraphExecExternalSemaphoresWaitNodeSetParams",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// kernel → signal → wait → kernel. Each launch has its own values.
pub(crate) struct PingPong {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    /// In the order of the chain.
    nodes: [sys::CUgraphNode; 4],
    context: Cuda,
}

/// The values of one launch.
pub(crate) struct Round<'a> {
    /// Takes one address and runs in one thread.
    pub kernel: &'a Kernel,
    pub ping: &'a SharedTimeline,
    pub pong: &'a SharedTimeline,
    pub value: u64,
    /// The two kernels' arguments.
    pub addresses: [sys::CUdeviceptr; 2],
}

impl PingPong {
    /// Builds the graph with the values of a first round. Does not launch it.
    pub(crate) fn new(context: &Cuda, round: &Round<'_>) -> Result<Self> {
        require(&SYMBOLS, "CUDA 12.0")?;
        context.bind()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: (here and for all calls below) handles are written to locals; parameters are copied before the call returns.
        context.check("cuGraphCreate", unsafe { api::cuGraphCreate(&mut graph, 0) })?;
        let nodes = [std::ptr::null_mut(); 4];
        // From here on, Drop cleans up.
        let mut made = Self { graph, exec: std::ptr::null_mut(), nodes, context: context.clone() };
        let mut params = Params::of(round);
        let [first, signal, wait, last] = &mut made.nodes;
        let kernel = params.kernel(0);
        // SAFETY: as above; the first node has no dependencies.
        let code = unsafe { api::cuGraphAddKernelNode(first, graph, std::ptr::null(), 0, &kernel) };
        context.check("cuGraphAddKernelNode", code)?;
        let signals = params.signal();
        // SAFETY: as above; one dependency, on a node of this graph.
        let code = unsafe { api::cuGraphAddExternalSemaphoresSignalNode(signal, graph, first, 1, &signals) };
        context.check("cuGraphAddExternalSemaphoresSignalNode", code)?;
        let waits = params.wait();
        // SAFETY: as above.
        let code = unsafe { api::cuGraphAddExternalSemaphoresWaitNode(wait, graph, signal, 1, &waits) };
        context.check("cuGraphAddExternalSemaphoresWaitNode", code)?;
        let kernel = params.kernel(1);
        // SAFETY: as above.
        let code = unsafe { api::cuGraphAddKernelNode(last, graph, wait, 1, &kernel) };
        context.check("cuGraphAddKernelNode", code)?;
        // SAFETY: a whole graph of this context.
        let code = unsafe { api::cuGraphInstantiateWithFlags(&mut made.exec, graph, 0) };
        context.check("cuGraphInstantiateWithFlags", code)?;
        Ok(made)
    }

    /// Enqueues the chain with this round's values.
    pub(crate) fn launch(&self, stream: &Stream, round: &Round<'_>) -> Result<()> {
        let context = &self.context;
        context.bind()?;
        let mut params = Params::of(round);
        let (exec, [first, signal, wait, last]) = (self.exec, self.nodes);
        for (index, node) in [(0, first), (1, last)] {
            let kernel = params.kernel(index);
            // SAFETY: a node of this graph; the parameters are copied before the call returns.
            let code = unsafe { api::cuGraphExecKernelNodeSetParams(exec, node, &kernel) };
            context.check("cuGraphExecKernelNodeSetParams", code)?;
        }
        let signals = params.signal();
        // SAFETY: as above.
        let code = unsafe { api::cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, signal, &signals) };
        context.check("cuGraphExecExternalSemaphoresSignalNodeSetParams", code)?;
        let waits = params.wait();
        // SAFETY: as above.
        let code = unsafe { api::cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, wait, &waits) };
        context.check("cuGraphExecExternalSemaphoresWaitNodeSetParams", code)?;
        // SAFETY: a live graph and stream of one context.
        Ok(context.check("cuGraphLaunch", unsafe { api::cuGraphLaunch(exec, stream.raw()) })?)
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            // SAFETY: created in `new`; the stream that ran it is idle before it is dropped.
            self.context.cleanup("cuGraphExecDestroy", || unsafe { api::cuGraphExecDestroy(self.exec) });
        }
        // SAFETY: as above.
        self.context.cleanup("cuGraphDestroy", || unsafe { api::cuGraphDestroy(self.graph) });
    }
}

/// The four nodes' parameters. They contain pointers into this structure, so each is made when it is needed.
struct Params {
    function: sys::CUfunction,
    addresses: [sys::CUdeviceptr; 2],
    arguments: [*mut c_void; 1],
    ping: sys::CUexternalSemaphore,
    pong: sys::CUexternalSemaphore,
    signal: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    wait: sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
}

impl Params {
    fn of(round: &Round<'_>) -> Self {
        let value = Operand::Value(round.value);
        Self {
            function: round.kernel.raw(),
            addresses: round.addresses,
            arguments: [std::ptr::null_mut()],
            ping: round.ping.cuda(),
            pong: round.pong.cuda(),
            signal: value.signal_params(),
            wait: value.wait_params(),
        }
    }

    fn kernel(&mut self, index: usize) -> sys::CUDA_KERNEL_NODE_PARAMS {
        self.arguments = [(&raw mut self.addresses[index]).cast()];
        // SAFETY: a plain C structure of integers and pointers, for which all zeros is valid.
        let mut params: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        params.func = self.function;
        (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
        (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
        params.kernelParams = self.arguments.as_mut_ptr();
        params
    }

    fn signal(&mut self) -> sys::CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
        sys::CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
            extSemArray: &mut self.ping,
            paramsArray: &self.signal,
            numExtSems: 1,
        }
    }

    fn wait(&mut self) -> sys::CUDA_EXT_SEM_WAIT_NODE_PARAMS {
        sys::CUDA_EXT_SEM_WAIT_NODE_PARAMS {
            extSemArray: &mut self.pong,
            paramsArray: &self.wait,
            numExtSems: 1,
        }
    }
}
