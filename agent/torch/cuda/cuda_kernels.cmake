# cuda_kernels.cu as PTX in a string, cuda_kernels.ptx.inc: by Debian's clang, which needs nothing of CUDA for it (nothing
# of its headers and libraries is used). Where there is no such clang the string is empty, and CUDA's devices compute by
# torch's operators.

find_program(MSPROBE_CLANG NAMES clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
set(source ${CMAKE_CURRENT_LIST_DIR}/cuda_kernels.cu)
set(ptx ${CMAKE_CURRENT_BINARY_DIR}/cuda/cuda_kernels.ptx)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda)
set(flags -x cuda --cuda-device-only --cuda-path=${CMAKE_CURRENT_BINARY_DIR} -nocudainc -nocudalib
          --cuda-gpu-arch=sm_70 -O3 -std=c++20 -Wall -Wextra -Werror -I${PROJECT_SOURCE_DIR} -S)
set(compiles NO)
if(MSPROBE_CLANG)
  execute_process(COMMAND ${MSPROBE_CLANG} ${flags} ${source} -o ${ptx}.try RESULT_VARIABLE result OUTPUT_QUIET
                  ERROR_VARIABLE said)
  if(result EQUAL 0)
    set(compiles YES)
  else()
    message(STATUS "${MSPROBE_CLANG} does not compile for CUDA:\n${said}")
  endif()
endif()

set(embedded ${CMAKE_CURRENT_BINARY_DIR}/cuda/cuda_kernels.ptx.inc)
set(embed ${CMAKE_CURRENT_LIST_DIR}/embed_text.cmake)
if(compiles)
  add_custom_command(OUTPUT ${ptx} DEPENDS ${source} ${CMAKE_CURRENT_LIST_DIR}/cuda_reduction.h
  ${CMAKE_CURRENT_LIST_DIR}/../device/device_row.h COMMENT "Compiling the kernels for CUDA"
    COMMAND ${MSPROBE_CLANG} ${flags} ${source} -o ${ptx} VERBATIM)
else()
  message(STATUS "No clang that compiles for CUDA: the agent has no kernels of its own for CUDA's devices")
  file(WRITE ${ptx} "")
endif()
add_custom_command(OUTPUT ${embedded} DEPENDS ${ptx} ${embed} COMMAND ${CMAKE_COMMAND} -DFROM=${ptx} -DTO=${embedded} -P ${embed}
  VERBATIM)
target_sources(msprobe_device PRIVATE ${embedded})
target_include_directories(msprobe_device PRIVATE ${PROJECT_BINARY_DIR})

# For the oldest and the newest devices that torch knows.
if(MSPROBE_BUILD_TESTS)
  foreach(architecture sm_75 sm_80 sm_90 sm_100 sm_120)
    set(name capture_cuda_kernels_${architecture}_test)
    add_test(NAME ${name}
             COMMAND ${CMAKE_COMMAND} -DPTX=${ptx} -DARCHITECTURE=${architecture}
                     "-DHINTS=${TorchPython_LIBRARY_DIR}/../../nvidia/cuda_nvcc/bin"
                     -P ${CMAKE_CURRENT_LIST_DIR}/assemble_ptx.cmake)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
  endforeach()
endif()
