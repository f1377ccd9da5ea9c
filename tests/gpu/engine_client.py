# SPDX-License-Identifier: Apache-2.0
"""Calls the engine (farandole/engine.h) by ctypes, with device pointers and streams of any framework.

Only for tests: a framework calls the header from its own language.
"""
import ctypes
import importlib.util
import pathlib
import threading

HERE = pathlib.Path(__file__).resolve().parent
# Beside this file in a bundle, else in the repository.
PLACES = (HERE / "_engine_interface.py", HERE.parents[1] / "bindings/python/farandole/_engine_interface.py")


def load_interface():
    """The structures and functions of engine.h, which the Python package describes without importing anything else."""
    path = next(place for place in PLACES if place.exists())
    specification = importlib.util.spec_from_file_location("engine_interface", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


interface = load_interface()
F32 = interface.Dtype.F32


class Pending:
    """A request on its way. `done` is set when its collective is enqueued on the device."""

    def __init__(self):
        self.done = threading.Event()
        self.error = ""
        self.kept = []  # what the engine reads until then


class Engine:
    """The engine of this process, which the constructor starts."""

    def __init__(self, library_directory):
        self.library = ctypes.CDLL(f"{library_directory}/libfarandole.so.0.1", mode=ctypes.RTLD_GLOBAL)
        for name, (result, parameters) in interface.FUNCTIONS.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, parameters
        self._pending = {}
        self._lock = threading.Lock()
        self._on_done = interface.TensorDoneFunction(self._done)
        self._call(self.library.farandole_init, None)
        place = interface.Place()
        self.library.farandole_get_place(ctypes.byref(place))
        self.rank, self.size = place.rank, place.size

    def _call(self, function, *arguments):
        error = ctypes.c_void_p()
        if function(*arguments, ctypes.byref(error)) == 0:
            return
        text = self.library.farandole_error_text(error).decode()
        self.library.farandole_error_free(error)
        raise RuntimeError(text)

    def _done(self, context, result):
        with self._lock:
            pending = self._pending.pop(context)
        if result.contents.error:
            pending.error = self.library.farandole_error_text(result.contents.error).decode()
        pending.done.set()

    def allreduce(self, name, pointer, count, stream, device, op=interface.ReduceOp.Sum, dtype=F32):
        """Submits an allreduce in place of device memory. @returns a Pending"""
        pending = Pending()
        shape = (ctypes.c_int64 * 1)(count)
        tensor = interface.Tensor(dtype=dtype, dimensions=1, shape=shape, input=pointer, output=pointer, done=self._on_done,
                                  memory=interface.Memory.Cuda, device=device, stream=stream, context=id(pending))
        request = interface.Request(name=name.encode(), collective=interface.Collective.Allreduce, op=op, prescale=1.0,
                                    postscale=1.0, tensors=ctypes.pointer(tensor), tensor_count=1)
        pending.kept += [shape, tensor, request]
        with self._lock:
            self._pending[id(pending)] = pending
        self._call(self.library.farandole_submit, ctypes.byref(request))
        return pending

    def wait(self, requests):
        """Until all are enqueued on the device."""
        for pending in requests:
            if not pending.done.wait(60):
                raise RuntimeError("a request was not done within 60 s")
            if pending.error:
                raise RuntimeError(pending.error)

    def counters(self):
        counters = interface.Counters()
        self.library.farandole_get_counters(ctypes.byref(counters))
        return {name: getattr(counters, name) for name, _ in interface.Counters._fields_}

    def leave(self):
        self._call(self.library.farandole_shutdown)
