# Settings every target shares, and the three kinds of target: msprobe_library, msprobe_test, msprobe_benchmark.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the agent is a shared object
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

if(MSPROBE_SANITIZE)
  add_compile_options(-fsanitize=${MSPROBE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # The undefined-behaviour checks keep a table of pointers for each: a third of every binary as plain relocations.
  add_link_options(-fsanitize=${MSPROBE_SANITIZE} -Wl,-z,pack-relative-relocs)
endif()

if(MSPROBE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link
                      -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/tests/fuzz/undefined_not_ours.txt)
endif()

# Warnings are errors in our own sources; generated code does not link this.
add_library(msprobe_warnings INTERFACE)
target_compile_options(msprobe_warnings INTERFACE -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(msprobe_warnings INTERFACE -Wthread-safety)
endif()

# msprobe_library(NAME SOURCES ... [DEPS ...]): a static library of one room; headers are included from the root.
function(msprobe_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE msprobe_warnings)
endfunction()

# msprobe_test(NAME SOURCES ... [DEPS ...]): a GoogleTest binary, found by ctest under its name.
function(msprobe_test name)
  if(NOT MSPROBE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main msprobe_warnings)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

# msprobe_benchmark(NAME SOURCES ... [DEPS ...]): a Google Benchmark binary, built (alone: target msprobe_benchmarks) but not
# run by ctest.
add_custom_target(msprobe_benchmarks)
function(msprobe_benchmark name)
  if(NOT MSPROBE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/benchmarks)
  add_dependencies(msprobe_benchmarks ${name})
  if(MSPROBE_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)  # a sanitized time means nothing
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark benchmark::benchmark_main msprobe_warnings)
endfunction()
