# FindTorchPython: the torch wheel of one Python, without torch's own CMake package (that looks for CUDA, MKL and protobuf);
# and others, for which agents are built besides.
#
# Input
#   MSPROBE_PYTHON        the interpreter that the agent is built for; default .venv/bin/python of this checkout
#   MSPROBE_TORCH         the torch that the agent is built for: an unpacked wheel's folder "torch", of which include/, lib/
#                         and version.py are used; default that of MSPROBE_PYTHON
#   MSPROBE_MORE_AGENTS   a list of TORCH@PYTHON: a folder as in MSPROBE_TORCH, and an interpreter, which needs no torch. The
#                         target "agents" builds an agent for each
# Output
#   msprobe_python        a function that asks a Python where its headers are, and how it names extensions
#   msprobe_torch_libs    torch's headers (SYSTEM), its bundled pybind11 headers, libtorch, libtorch_cpu, libc10 and
#                         libtorch_python; MSPROBE_TORCH_VERSION as a string, "2.13.0". Its property MSPROBE_OLD_STRINGS
#                         is ON where torch was built with the std::string of before C++11 (agent/torch/strings)
#   msprobe_torch_libs_M  the same of another minor version M of torch, "2.10", for each M in TorchPython_MORE
#   TorchPython_VERSION   2.13.0 (no local label)
#   TorchPython_MINOR     2.13
#   TorchPython_LIBRARY_DIR   where the wheel's shared objects lie, for the rpath of tests run in the build tree
#
# Include this after find_package(Protobuf) and find_package(gRPC): torch ships old google/protobuf headers, so one translation unit
# never sees both msprobe_torch_libs and msprobe_proto.

set(MSPROBE_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that the agent is built for")
set(MSPROBE_TORCH "" CACHE PATH "Unpacked torch that the agent is built for; empty: that of MSPROBE_PYTHON")
set(MSPROBE_MORE_AGENTS "" CACHE STRING "TORCH@PYTHON;...: what else the target agents builds agents for")
if(NOT EXISTS "${MSPROBE_PYTHON}")
  message(FATAL_ERROR "MSPROBE_PYTHON is ${MSPROBE_PYTHON}, which does not exist. Run make once (it makes .venv), name a "
                      "Python that has torch, or configure with -DMSPROBE_BUILD_TORCH=OFF.")
endif()

# Sets PREFIX_INCLUDE, the folder of the headers of the interpreter `python`; PREFIX_SUFFIX, how the names of its extensions
# end; and PREFIX_TAG, "cp311". Unlike FindPython it also asks one of another machine, which runs under an emulator.
function(msprobe_python prefix python)
  execute_process(
    COMMAND "${python}" -c [[
import sys, sysconfig
print(sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX"), "cp%d%d" % sys.version_info[:2], sep=";", end="")
]]
    OUTPUT_VARIABLE facts
    COMMAND_ERROR_IS_FATAL ANY)
  list(GET facts 0 include)
  if(NOT EXISTS "${include}/Python.h")
    message(FATAL_ERROR "${python} has no headers: there is no ${include}/Python.h")
  endif()
  foreach(fact INCLUDE SUFFIX TAG)
    list(POP_FRONT facts value)
    set(${prefix}_${fact} "${value}" PARENT_SCOPE)
  endforeach()
endfunction()

set(torch_root "${MSPROBE_TORCH}")
if(NOT torch_root)
  # importlib finds the package without importing it, which would take two seconds.
  execute_process(
    COMMAND "${MSPROBE_PYTHON}" -c [[
import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("torch").origin).parent, end="")
]]
    OUTPUT_VARIABLE torch_root
    ERROR_VARIABLE torch_error
    RESULT_VARIABLE torch_result)
  if(NOT torch_result EQUAL 0)
    message(FATAL_ERROR "${MSPROBE_PYTHON} has no torch that could be found:\n${torch_error}")
  endif()
endif()
set(TorchPython_LIBRARY_DIR "${torch_root}/lib")

# Sets VARIABLE to the version of the torch in the folder ROOT, without its local label.
function(msprobe_torch_version variable root)
  set(line "")
  if(EXISTS "${root}/version.py")
    file(STRINGS "${root}/version.py" line REGEX "^__version__ = " LIMIT_COUNT 1)
  endif()
  if(NOT line MATCHES "['\"]([0-9]+\\.[0-9]+\\.[0-9]+)")
    message(FATAL_ERROR "${root} is no folder of an unpacked torch: its version.py does not say a version")
  endif()
  set(${variable} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# The target NAME for the torch in the folder ROOT.
function(msprobe_torch name root)
  if(TARGET ${name})
    return()
  endif()
  msprobe_torch_version(version "${root}")
  add_library(${name} INTERFACE)
  file(STRINGS "${root}/lib/libc10.so" old_strings REGEX "torchCheckFailEPKcS2_jRKSs" LIMIT_COUNT 1)
  if(old_strings)
    set_target_properties(${name} PROPERTIES MSPROBE_OLD_STRINGS ON)
  endif()
  foreach(library torch_python torch torch_cpu c10)
    add_library(${name}_${library} SHARED IMPORTED)
    set_target_properties(${name}_${library} PROPERTIES IMPORTED_LOCATION "${root}/lib/lib${library}.so")
    target_link_libraries(${name} INTERFACE ${name}_${library})
  endforeach()
  target_include_directories(${name} SYSTEM INTERFACE "${root}/include" "${root}/include/torch/csrc/api/include")
  target_compile_definitions(${name} INTERFACE MSPROBE_TORCH_VERSION="${version}")
endfunction()

msprobe_torch_version(TorchPython_VERSION "${torch_root}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" TorchPython_MINOR "${TorchPython_VERSION}")
include(FindPackageHandleStandardArgs)
find_library(TorchPython_LIBRARY torch_python PATHS "${TorchPython_LIBRARY_DIR}" NO_DEFAULT_PATH NO_CACHE
             NO_CMAKE_FIND_ROOT_PATH)
find_package_handle_standard_args(
  TorchPython REQUIRED_VARS TorchPython_LIBRARY TorchPython_LIBRARY_DIR VERSION_VAR TorchPython_VERSION)
msprobe_torch(msprobe_torch_libs "${torch_root}")

# Patches of one minor version have one ABI: the first that is named is taken.
set(TorchPython_MORE "")
foreach(agent ${MSPROBE_MORE_AGENTS})
  string(REGEX REPLACE "@[^@]*$" "" root "${agent}")
  msprobe_torch_version(version "${root}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  if(NOT minor STREQUAL TorchPython_MINOR)
    msprobe_torch(msprobe_torch_libs_${minor} "${root}")
    list(APPEND TorchPython_MORE ${minor})
  endif()
endforeach()
list(REMOVE_DUPLICATES TorchPython_MORE)
