//! Small dense ids. A `TaskId` is an index into [`Workload::tasks`](crate::Workload::tasks) in the
//! simulator and into the task table of a recording; it is never an operating-system pid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, JsonSchema, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            #[inline]
            fn from(index: usize) -> Self {
                $name(u32::try_from(index).expect("fewer than 2^32 of anything"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A thread (Linux) or a vCPU (Xen): what a scheduler dispatches.
    TaskId, "task"
);
id!(
    /// A logical CPU (a pCPU under a hypervisor), counted from 0.
    CpuId, "cpu"
);
id!(
    /// A control group (Linux) or a domain (Xen). `GroupId(0)` is the root.
    GroupId, "group"
);
id!(
    /// A channel of a workload: a counted queue on which tasks wait.
    ChannelId, "channel"
);
id!(
    /// A mutex of a workload.
    LockId, "lock"
);
id!(
    /// A script of operations at objects.
    ScriptId, "script"
);
id!(
    /// An executor: threads that serve many objects.
    ExecutorId, "executor"
);
id!(
    /// A source of requests from outside the machine.
    SourceId, "source"
);

id!(
    /// An object at which tasks exchange messages: a direction of a connection, a pipe, a futex, a
    /// timer.
    ObjectId, "object"
);

impl GroupId {
    /// The root group, which always exists.
    pub const ROOT: GroupId = GroupId(0);
}
