# FindTorchPython: the torch wheel of one Python, without torch's own CMake package (that looks for CUDA, MKL and protobuf).
#
# Input
#   MSPROBE_PYTHON        the interpreter whose torch is built against; default .venv/bin/python of this checkout
# Output
#   Python::Module        headers of that interpreter, and python_add_library (FindPython, Development.Module)
#   msprobe_torch_libs    torch's headers (SYSTEM), its bundled pybind11 headers, libtorch, libtorch_cpu, libc10 and
#                         libtorch_python; the C++ ABI of the wheel; MSPROBE_TORCH_VERSION as a string, "2.13.0"
#   TorchPython_VERSION   2.13.0 (no local label)
#   TorchPython_LIBRARY_DIR   where the wheel's shared objects lie, for the rpath of tests run in the build tree
#
# Include this after find_package(Protobuf) and find_package(gRPC): torch ships old google/protobuf headers, so one translation unit
# never sees both msprobe_torch_libs and msprobe_proto.

set(MSPROBE_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python with torch that the agent is built for")
if(NOT EXISTS "${MSPROBE_PYTHON}")
  message(FATAL_ERROR "MSPROBE_PYTHON is ${MSPROBE_PYTHON}, which does not exist. Run make once (it makes .venv), name a "
                      "Python that has torch, or configure with -DMSPROBE_BUILD_TORCH=OFF.")
endif()

set(Python_EXECUTABLE "${MSPROBE_PYTHON}")
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)

# importlib finds the package without importing it, which would take two seconds.
execute_process(
  COMMAND "${MSPROBE_PYTHON}" -c [[
import importlib.metadata, importlib.util, pathlib
root = pathlib.Path(importlib.util.find_spec("torch").origin).parent
print(root, importlib.metadata.version("torch").split("+")[0], sep=";", end="")
]]
  OUTPUT_VARIABLE torch_facts
  ERROR_VARIABLE torch_error
  RESULT_VARIABLE torch_result)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "${MSPROBE_PYTHON} has no torch that could be found:\n${torch_error}")
endif()
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 TorchPython_VERSION)
set(TorchPython_LIBRARY_DIR "${torch_root}/lib")

include(FindPackageHandleStandardArgs)
find_library(TorchPython_LIBRARY torch_python PATHS "${TorchPython_LIBRARY_DIR}" NO_DEFAULT_PATH)
find_package_handle_standard_args(
  TorchPython REQUIRED_VARS TorchPython_LIBRARY TorchPython_LIBRARY_DIR VERSION_VAR TorchPython_VERSION)

if(NOT TARGET msprobe_torch_libs)
  foreach(library torch torch_cpu c10 torch_python)
    add_library(msprobe_torch_${library} SHARED IMPORTED)
    set_target_properties(msprobe_torch_${library} PROPERTIES IMPORTED_LOCATION "${TorchPython_LIBRARY_DIR}/lib${library}.so")
  endforeach()
  add_library(msprobe_torch_libs INTERFACE)
  target_include_directories(
    msprobe_torch_libs SYSTEM INTERFACE "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
  target_compile_definitions(
    msprobe_torch_libs INTERFACE _GLIBCXX_USE_CXX11_ABI=1 MSPROBE_TORCH_VERSION="${TorchPython_VERSION}")
  target_link_libraries(msprobe_torch_libs INTERFACE msprobe_torch_torch_python msprobe_torch_torch msprobe_torch_torch_cpu
                                                     msprobe_torch_c10)
endif()
