//! A scheduler around another one.

/// Hands calls on to the scheduler in a field: for a [`Scheduler`](crate::Scheduler) that watches,
/// logs or spoils another one and writes out only the calls in which it differs. It is among the
/// methods of its `impl`: `schedlab_scheduler::forward!(inner: needs, init, wake);`. A call that is
/// not named has the trait's default, not the inner scheduler's answer.
#[macro_export]
macro_rules! forward {
    ($inner:ident: $($call:ident),+ $(,)?) => { $($crate::forward!(@$call $inner);)+ };
    (@needs $inner:ident) => {
        fn needs(&self) -> $crate::Needs {
            self.$inner.needs()
        }
    };
    (@refuses $inner:ident) => {
        fn refuses(&self, policy: ::schedlab_model::Policy) -> Option<&'static str> {
            self.$inner.refuses(policy)
        }
    };
    (@stands_in $inner:ident) => {
        fn stands_in(&self, policy: ::schedlab_model::Policy) -> Option<&'static str> {
            self.$inner.stands_in(policy)
        }
    };
    (@rejects $inner:ident) => {
        fn rejects(&self, world: &$crate::World) -> Option<$crate::Rejection> {
            self.$inner.rejects(world)
        }
    };
    (@init $inner:ident) => {
        fn init(&self, cx: &$crate::Cx<'_>) {
            self.$inner.init(cx);
        }
    };
    (@wake $inner:ident) => {
        fn wake(&self, cx: &$crate::Cx<'_>, task: ::schedlab_model::TaskId, wake: $crate::Wake) {
            self.$inner.wake(cx, task, wake);
        }
    };
    (@leave $inner:ident) => {
        fn leave(&self, cx: &$crate::Cx<'_>, task: ::schedlab_model::TaskId) {
            self.$inner.leave(cx, task);
        }
    };
    (@yielded $inner:ident) => {
        fn yielded(&self, cx: &$crate::Cx<'_>, task: ::schedlab_model::TaskId) {
            self.$inner.yielded(cx, task);
        }
    };
    (@ahead $inner:ident) => {
        fn ahead(&self, cx: &$crate::Cx<'_>, cpu: ::schedlab_model::CpuId) -> Option<::schedlab_model::TaskId> {
            self.$inner.ahead(cx, cpu)
        }
    };
    (@saved $inner:ident) => {
        fn saved(&self, cx: &$crate::Cx<'_>, cpu: ::schedlab_model::CpuId, prev: ::schedlab_model::TaskId) {
            self.$inner.saved(cx, cpu, prev);
        }
    };
    (@tick $inner:ident) => {
        fn tick(&self, cx: &$crate::Cx<'_>, cpu: ::schedlab_model::CpuId) {
            self.$inner.tick(cx, cpu);
        }
    };
    (@tick_due $inner:ident) => {
        fn tick_due(&self, cx: &$crate::Cx<'_>, cpu: ::schedlab_model::CpuId) -> u64 {
            self.$inner.tick_due(cx, cpu)
        }
    };
    (@tick_stops $inner:ident) => {
        fn tick_stops(&self, cx: &$crate::Cx<'_>, cpu: ::schedlab_model::CpuId) -> bool {
            self.$inner.tick_stops(cx, cpu)
        }
    };
    (@timer $inner:ident) => {
        fn timer(&self, cx: &$crate::Cx<'_>, timer: $crate::Timer) {
            self.$inner.timer(cx, timer);
        }
    };
    (@call $inner:ident) => {
        fn call(&self, cx: &$crate::Cx<'_>, cookie: u64) {
            self.$inner.call(cx, cookie);
        }
    };
    (@changed $inner:ident) => {
        fn changed(&self, cx: &$crate::Cx<'_>, change: $crate::Change) {
            self.$inner.changed(cx, change);
        }
    };
    (@resync $inner:ident) => {
        fn resync(&self, cx: &$crate::Cx<'_>) {
            self.$inner.resync(cx);
        }
    };
    (@standing $inner:ident) => {
        fn standing(&self, cx: &$crate::Cx<'_>, task: ::schedlab_model::TaskId) -> Option<$crate::Standing> {
            self.$inner.standing(cx, task)
        }
    };
    (@explain $inner:ident) => {
        fn explain(&self, cx: &$crate::Cx<'_>, cpu: ::schedlab_model::CpuId) -> String {
            self.$inner.explain(cx, cpu)
        }
    };
}
